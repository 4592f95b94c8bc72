"""Every error a user can meet: what happened, to which node or tensor, where, what to do."""

from __future__ import annotations


class LucidFxWarning(UserWarning):
    """Something was repaired or left out; the text names the tensor or node."""


class LucidFxError(Exception):
    """Base of all errors of lucid_fx.

    ``str()`` is one sentence, with the node, tensor and pass in it, and then what to do.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        tensor: str | None = None,
        pass_name: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.node = node
        self.tensor = tensor
        self.pass_name = pass_name
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        where = [
            f"{what} {name!r}"
            for what, name in (
                ("node", self.node),
                ("tensor", self.tensor),
                ("pass", self.pass_name),
            )
            if name is not None
        ]
        text = self.message if not where else f"{self.message} ({', '.join(where)})"
        return text if self.hint is None else f"{text}; {self.hint}"


class ModelError(LucidFxError):
    """The input is not a model that we or onnxruntime can take."""


class AlreadyQuantizedError(ModelError):
    """The input model holds quantized nodes already."""


class DataError(LucidFxError, ValueError):
    """Calibration or input data does not fit the model (name, rank, dtype, no samples)."""


class ConfigError(LucidFxError, ValueError):
    """A name, type or option in the user's configuration matches nothing or is not valid."""


class CalibrationError(LucidFxError):
    """Statistics are missing or not finite where they are needed."""


class VerifyError(LucidFxError):
    """A pass left the graph illegal; a defect of ours, with the pass and the node named."""


class NativeLibraryError(LucidFxError):
    """The native library is there but cannot be used."""
