// CROWN: linear bounds from a node back to the input.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "certify/node_bounds.h"

namespace seqfuse::certify {

// Lower bounds over the ball of rows · node: float64 [B, M], rounded downwards; NaN where numbers became
// too large. rows: [B or 1, M, *shape] in the dtype of the bounds. Reads the intervals of all nodes before
// `node`, and of `node` itself.
at::Tensor lower_bounds(const NodeBounds& bounds, int node, at::Tensor rows);

// The interval of a node by two such bounds for each of its elements, in blocks of at most block_bytes of
// memory. Elements whose interval is as narrow as rounding allows keep it.
Interval backward_interval(const NodeBounds& bounds, int node, int64_t block_bytes);

// Estimates the bytes that a row of lower_bounds needs.
int64_t bytes_of_a_row(const NodeBounds& bounds, int node);

}  // namespace seqfuse::certify
