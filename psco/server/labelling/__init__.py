"""The page of ``psco label``: a session of `psco.labelling` behind a small server."""
