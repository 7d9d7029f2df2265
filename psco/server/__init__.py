"""Pages and services on this machine; needs the extra ``app``."""
