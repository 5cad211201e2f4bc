"""Training steps of HSTU layers, for a profiler: the last one is captured. capture.py runs it.

Two layers of width 1024 with 4 heads of 256 in bfloat16, 8 sequences of 1 to 2048 tokens, Adam; as many layers as
show all kernels. torch names ranges by operator, in the backward pass too.
"""

import torch

import seqfuse

WIDTH, HEADS, LENGTH, SEQUENCES, LAYERS = 1024, 4, 2048, 8, 2


def main() -> None:
    torch.manual_seed(1)
    layers = [
        seqfuse.HSTULayer(WIDTH, HEADS, WIDTH // HEADS, scaling_seqlen=LENGTH, dropout=0.1, device="cuda")
        for _ in range(LAYERS)
    ]
    weights = [weight for layer in layers for weight in layer.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3, fused=True)
    lengths = torch.randint(1, LENGTH + 1, (SEQUENCES,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).cuda()
    x = torch.randn(int(lengths.sum()), WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        hidden = x
        for layer in layers:
            hidden = layer(hidden, offsets, max_seqlen=LENGTH)
        hidden.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(2):  # allocates and loads
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    with torch.autograd.profiler.emit_nvtx():
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(f"{x.shape[0]} tokens")


if __name__ == "__main__":
    main()
