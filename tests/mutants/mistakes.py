"""The mistakes: a file, the text to replace, its replacement, and the tests that must fail."""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """One mistake; ``old`` occurs once in the file."""

    file: str
    old: str
    new: str
    tests: str


MISTAKES = [
    # Files that survive a kill or a power failure.
    Mistake("psco/files/atomic.py", "            os.fsync(written.fileno())", "            pass",
            "tests/files/test_power_failure.py"),
    Mistake("psco/files/atomic.py", "    _sync_folder(target.parent)", "    pass",
            "tests/files/test_power_failure.py"),
    Mistake("psco/files/atomic.py", "        temporary.unlink(missing_ok=True)\n        raise",
            "        raise", "tests/classifier/test_storage.py"),
    Mistake("psco/files/checksums.py", "    raise damaged(path, \"its sha256 differs\", advice)",
            "    return True", "tests/files/test_checksums.py"),
    Mistake("psco/files/tensors.py", "dict(sorted(fields[\"__metadata__\"].items()))",
            "dict(fields[\"__metadata__\"].items())",
            "tests/training/test_checkpoint.py -k different_processes"),
    # Locks.
    Mistake("psco/files/lock.py", "os.register_at_fork(after_in_child=_let_go_in_child)", "pass",
            "tests/files/test_lock.py"),
    Mistake("psco/files/lock.py", "        return by_system is True", "        return True",
            "tests/files/test_lock.py"),
    Mistake("psco/files/lock.py", "        if _touched(path) != first:", "        if False:",
            "tests/files/test_lock.py"),
    Mistake("psco/files/lock.py", "            os.utime(path)", "            pass",
            "tests/files/test_lock.py"),
    Mistake("psco/training/trainer.py", "with hold_folder(folder) if place.is_first else",
            "with nullcontext() if place.is_first else", "tests/training/test_run_folder.py"),
    Mistake("psco/files/disk.py", "if not self._folder.is_dir():  # writers", "if False:  #",
            "tests/training/test_run_folder.py"),
    # Files from other people.
    Mistake("psco/files/limited_yaml.py", "            values += sizes.get(str(event.anchor), 1)",
            "            values += 1", "tests/files/test_limited_yaml.py"),
    Mistake("psco/files/limited_yaml.py", "        if len(open_nodes) > MAX_DEPTH:",
            "        if False:", "tests/files/test_limited_yaml.py"),
    Mistake("psco/files/limited_yaml.py", "if digits > MAX_DIGITS and", "if False and",
            "tests/files/test_limited_yaml.py"),
    Mistake("psco/files/limited_yaml.py", "    if tag is not None and tag != \"!\":",
            "    if False:", "tests/files/test_limited_yaml.py"),
    Mistake("psco/recipes/size.py", "    if megabytes > limit:", "    if False:",
            "tests/recipes/test_size.py -k limit"),
    Mistake("psco/training/resume.py", "value.shape != parameter.shape or", "",
            "tests/training/test_resume_state.py"),
    Mistake("psco/training/resume.py", "    if not value.isfinite().all():",
            "    if False:", "tests/training/test_resume_state.py"),
    Mistake("psco/training/resume.py", "    _check_count(state[\"step\"], \"step\", source)",
            "    pass", "tests/training/test_resume_state.py"),
    Mistake("psco/classifier/header.py", "temperature: float = Field(gt=0)", "temperature: float",
            "tests/classifier/test_crafted.py"),
    Mistake("psco/classifier/header.py", "dtype.itemsize > 4 * max(1, longest)", "False",
            "tests/classifier/test_crafted.py"),
    Mistake("psco/networks/external.py", "if not re.fullmatch(r\"[\\w.-]+\", name):", "if False:",
            "tests/recipes/test_size.py -k timm"),
    Mistake("psco/ops/forks.py", "torch.set_num_threads(1)", "None", "tests/ops/test_forks.py"),
    Mistake("psco/classifier/features.py", "features = features.clamp(-_FAR, _FAR)", "pass",
            "tests/classifier/test_estimator.py -k finite_size"),
    Mistake("psco/errors.py", "        super().__init__(printable(message))",
            "        super().__init__(message)", "tests/test_errors.py"),
    # The method and its numbers.
    Mistake("psco/networks/networks.py", "return F.normalize(self.projector(features), dim=1)",
            "return F.normalize(self.projector(features), dim=0)", "tests/methods/test_psco.py"),
    Mistake("psco/training/optim.py", "0.5 * (1 + math.cos(math.pi * done))",
            "0.5 * (1 - math.cos(math.pi * done))", "tests/training/test_training.py"),
    Mistake("psco/training/loop.py",
            "        self.step = self._saved_step = state[\"step\"]",
            "        self.step = self._saved_step = state[\"step\"] - 1",
            "tests/training/test_durability.py -k middle_of_a_checkpoint"),
    Mistake("psco/methods/momentum.py", "        self.position = (self.position + batch) % size",
            "        self.position = (self.position + 1) % size", "tests/methods/test_momentum.py"),
    Mistake("psco/classifier/confidence.py", "return margin / EXPECTED_LOGIT if",
            "return margin * EXPECTED_LOGIT if",
            "tests/classifier/test_confidence.py"),
]  # fmt: skip
