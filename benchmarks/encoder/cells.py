"""Shapes and masks of encoders, as options name them."""

MASKS = "none,causal,sliding:64,longformer:64,64,bigbird:96,64,3,dilated:256,4"


def split_masks(text: str) -> list[str]:
    """Numbers after a comma belong to the mask before it."""
    masks = []
    for part in text.split(","):
        if part.lstrip("-").isdigit():
            masks[-1] += f",{part}"
        else:
            masks.append(part)
    return masks


def split_cases(text: str) -> list[tuple[int, int]]:
    """(sequences, tokens of each) of 1x128,8x512."""
    return [tuple(map(int, case.split("x"))) for case in text.split(",")]


def file_name(model: str, batch: int, length: int, mask: str) -> str:
    """Of a plan or of measurements, without its ending."""
    return f"{model}-{batch}x{length}-{mask.replace(':', '_').replace(',', '_')}"
