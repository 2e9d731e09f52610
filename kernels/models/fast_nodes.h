#pragma once

// The nodes without weights over fast loops: bit for bit what RunPlainNode gives.

#include <optional>

#include "kernels/backends/cpu/integer/loops.h"
#include "kernels/models/graph/int8_graph.h"
#include "kernels/models/loops/code_loops.h"

namespace runnel::inference {

struct NodeLoops {
  const CodeLoops* codes = nullptr;
  const cpu::IntegerLoops* integers = nullptr;
};

// What the loops add for a kAdd; nothing where its sums do not fit int32.
std::optional<CodeAddition> AdditionOf(const Int8Graph& graph, const Int8Node& node);

// Arguments as RunPlainNode's (int8_executor.h).
void RunFastNode(const Int8Graph& graph, const NodeLoops& loops, const Int8Node& node,
                 const float* sample, const int8_t* x, const int8_t* other, int8_t* y);

}  // namespace runnel::inference
