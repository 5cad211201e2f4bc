// Linear bounds of every node by the perturbation, from the input forwards: the first half of CROWN-BaF.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "certify/node_bounds.h"

namespace seqfuse::certify {

// Sets the interval of each node before `end`: what interval arithmetic and the linear bounds both allow.
void bound_forward(NodeBounds& bounds, int end);

// Estimates the bytes that bound_forward needs.
int64_t forward_bytes(const Graph& graph, const Ball& ball);

}  // namespace seqfuse::certify
