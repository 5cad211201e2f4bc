"""Cases of BERT-base encoders (12 layers, 12 heads of 64) that other projects published, and their milliseconds."""

from dataclasses import dataclass, field


@dataclass
class Published:
    library: str
    card: str
    dtype: str
    fill: float  # mean length / longest length
    source: str
    ms: dict[tuple[int, int], float]  # (batch, longest length); empty: published as drawings only
    cases: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cases = self.cases or list(self.ms)


def _by_length(batch: int, lengths: range, *ms: float) -> dict[tuple[int, int], float]:
    return {(batch, length): of for length, of in zip(lengths, ms, strict=True)}


_BYTE_LENGTHS = range(64, 1025, 64)
_BYTE_SOURCE = "README.md of github.com/bytedance/ByteTransformer, commit 0f4ad88"
_FASTER_SOURCE = "docs/bert_guide.md of github.com/NVIDIA/FasterTransformer, commit 4c014fb"


def _faster(*ms: float) -> dict[tuple[int, int], float]:
    return dict(zip([(batch, length) for batch in (1, 8, 32) for length in (32, 128, 384)], ms, strict=True))


PUBLISHED = [
    Published(
        "ByteTransformer", "A100", "float16", 0.6, _BYTE_SOURCE,
        _by_length(1, _BYTE_LENGTHS, 0.90, 0.97, 1.36, 1.43, 1.69, 1.72, 1.86, 2.00, 2.19, 2.23, 2.47, 2.51, 2.80, 2.86,
                   3.12, 3.16)
        | _by_length(16, _BYTE_LENGTHS, 2.09, 3.18, 5.08, 6.85, 7.49, 8.44, 8.89, 9.22, 10.15, 12.04, 13.55, 16.3,
                     16.92, 20.67, 23.27, 24.70),
    ),
    Published(
        "FasterTransformer", "A100", "float16", 1.0, _FASTER_SOURCE,
        _faster(0.93, 1.09, 1.36, 1.11, 1.81, 4.77, 1.82, 4.81, 14.68),
    ),
    Published(
        "FasterTransformer without padding", "A100", "float16", 0.5, _FASTER_SOURCE,
        _faster(1.15, 1.20, 1.16, 1.13, 1.59, 3.04, 1.58, 2.79, 8.07),
    ),
    Published(
        "TurboTransformers", "RTX 2060, V100, P40, M40", "float32", 1.0,
        "benchmark/gpu_run_benchmark.sh of github.com/Tencent/TurboTransformers, commit 3f67177; times are drawings",
        {},
        [(batch, length) for batch in (1, 20) for length in (10, 20, 40, 60, 80, 120, 200, 300, 400, 500)],
    ),
]  # fmt: skip
