#pragma once

// A model in integers as the layers that a pipeline can be cut at, and their states as stages get
// them. Pure functions.

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

struct QuantizedStages {
  // The zoo's model. Layers between which no cut is possible are one: those that have no node of
  // their own (a ReLU became part of the node before), and those across whose border more than one
  // value goes.
  ModelSpec model;
  ModelState state;  // in the form of proto/base/training/int8_inference.h
};

// graph: QuantizedModel::graph. InvalidArgument, one line: it cannot be parsed, or its nodes are
// not those of this model's layers in order. What the nodes hold, workers check.
absl::StatusOr<QuantizedStages> CutAtLayers(const ModelSpec& model, absl::string_view graph);

}  // namespace runnel
