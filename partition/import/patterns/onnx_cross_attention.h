#pragma once

// Attention from one sequence to another, which the decoder of an encoder and decoder has. It cannot be
// trained; found, it is one complaint in place of one for each of its nodes. For onnx_graph.cc.

#include <string>

#include "onnx/onnx_pb.h"

namespace runnel::import {

// The name of the first product of queries with keys whose values come with the keys from somewhere
// else than the queries do; empty: there is none. Looks at names and operators alone, so any graph
// will do whose values are made before they are read.
std::string FindCrossAttention(const onnx::GraphProto& graph);

}  // namespace runnel::import
