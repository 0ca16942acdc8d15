"""What a file of PyTorch's holds, told by the names in its zip archive: its suffix says little."""

import zipfile
from enum import Enum
from pathlib import Path

from services.runtime.backends import BadArtifactError

_LISTED = 4
NETWORK = "network.py"  # beside weights: the code of what they belong to
WEIGHTS_HINT = (
    "save the model with torch.jit.script(model).save(FILE) or torch.export.save(torch.export.export(model, …), FILE),"
    " or put a network.py beside its weights"
)


class Form(Enum):
    """How a model is written down."""

    SCRIPT = "TorchScript"
    EXPORTED = "an exported program"
    COMPILED = "a package that AOTInductor compiled"
    PICKLED = "a pickle"  # of weights, as a rule


def form_of(artifact: Path) -> Form:
    """Raises BadArtifactError for anything else, and for what is cut off."""
    with artifact.open("rb") as stream:
        if stream.read(1) == b"\x80":  # as torch.save wrote before 1.6
            return Form.PICKLED
    names = names_in(artifact)
    if any("data/aotinductor/" in name for name in names):
        return Form.COMPILED
    if any(_is_program(name) for name in names):
        return Form.EXPORTED
    last = {name.rpartition("/")[2] for name in names}
    if {"constants.pkl", "data.pkl"} <= last:
        return Form.SCRIPT
    if "data.pkl" in last:
        return Form.PICKLED
    found = ", ".join(names[:_LISTED]) or "nothing"
    raise BadArtifactError(
        f"{artifact.name}: expected TorchScript, an exported program or an AOTInductor package, found a zip archive"
        f" with {found}{' …' if len(names) > _LISTED else ''}"
    )


def names_in(artifact: Path) -> list[str]:
    """The files in a zip archive. Raises BadArtifactError where it has no directory of them, which is its end."""
    try:
        with zipfile.ZipFile(artifact) as archive:
            return archive.namelist()
    except zipfile.BadZipFile as error:
        raise BadArtifactError(
            f"{artifact.name}: expected a whole zip archive, found {artifact.stat().st_size} bytes without its"
            " directory at their end: the file is cut off or damaged"
        ) from error


def has_example(artifact: Path) -> bool:
    """Whether TorchScript keeps the inputs that it was traced with."""
    return any(name.endswith("/traced_inputs.pkl") for name in names_in(artifact))


def refusal(artifact: Path, form: Form, error: Exception) -> BadArtifactError:
    """What is said of a file that torch cannot read: the first line of its reason, without folders."""
    reason = str(error).replace(str(artifact), artifact.name).replace(f"{artifact.parent}/", "").strip()
    first = next(iter(reason.splitlines()), "") or type(error).__name__
    return BadArtifactError(f"{artifact.name}: expected {form.value}; torch says: {first}")


def _is_program(name: str) -> bool:
    is_model = "models/" in name and name.endswith(".json")
    return is_model or name.endswith("serialized_exported_program.json")
