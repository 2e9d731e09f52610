#pragma once

// A model with every kind of state tensor: conv (grouped, normal by fan-out), batch norm, linear
// (uniform), linear (normal).

#include "proto/base/model/model_spec.h"
#include "proto/base/training/training_defaults.h"

namespace runnel::testing {

inline ModelSpec SampleModel() {
  OpSpec conv;
  conv.kind = OpKind::kConv;
  conv.inputs = {0};
  conv.out_channels = 8;
  conv.kernel = {3, 3};
  conv.groups = 2;
  conv.bias = true;
  conv.init = InitKind::kNormalFanOut;
  OpSpec norm;
  norm.kind = OpKind::kBatchNorm;
  norm.inputs = {1};
  OpSpec flatten;
  flatten.kind = OpKind::kFlatten;
  flatten.inputs = {0};
  OpSpec hidden;
  hidden.kind = OpKind::kLinear;
  hidden.inputs = {1};
  hidden.out_channels = 50;
  hidden.bias = true;
  OpSpec last;
  last.kind = OpKind::kLinear;
  last.inputs = {0};
  last.out_channels = 10;
  last.bias = true;
  last.init = InitKind::kNormal;
  last.init_std = 0.02;

  ModelSpec model;
  model.name = "sample";
  model.input = {4, 8, 8};
  model.classes = 10;
  model.layers = {{"conv1", {conv, norm}}, {"fc1", {flatten, hidden}}, {"fc2", {last}}};
  return model;
}

inline TrainingDefaults SampleDefaults() { return {.milestones = {2, 4}}; }

}  // namespace runnel::testing
