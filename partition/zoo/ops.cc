#include "partition/zoo/ops.h"

namespace runnel::zoo {

OpSpec Plain(OpKind kind, int32_t input) {
  OpSpec op;
  op.kind = kind;
  op.inputs = {input};
  return op;
}

OpSpec Conv1d(int32_t input, int64_t out_channels, int64_t kernel) {
  OpSpec op = Plain(OpKind::kConv, input);
  op.out_channels = out_channels;
  op.kernel = {kernel, 1};
  return op;
}

OpSpec Conv2d(int32_t input, int64_t out_channels, int64_t kernel, int64_t stride, int64_t padding,
              int64_t groups) {
  OpSpec op = Plain(OpKind::kConv, input);
  op.out_channels = out_channels;
  op.kernel = {kernel, kernel};
  op.stride = {stride, stride};
  op.padding = {padding, padding};
  op.groups = groups;
  return op;
}

OpSpec Linear(int32_t input, int64_t out_features) {
  OpSpec op = Plain(OpKind::kLinear, input);
  op.out_channels = out_features;
  return op;
}

OpSpec Embedding(int32_t input, int64_t rows, int64_t features) {
  OpSpec op = Plain(OpKind::kEmbedding, input);
  op.rows = rows;
  op.out_channels = features;
  op.init = InitKind::kNormal;
  op.init_std = 1;
  return op;
}

OpSpec BatchNorm(int32_t input) { return Plain(OpKind::kBatchNorm, input); }

OpSpec MaxPool2(int32_t input) {
  OpSpec op = Plain(OpKind::kMaxPool, input);
  op.kernel = {2, 2};
  op.stride = {2, 2};
  return op;
}

OpSpec MaxPool3(int32_t input) {
  OpSpec op = Plain(OpKind::kMaxPool, input);
  op.kernel = {3, 3};
  op.stride = {2, 2};
  op.padding = {1, 1};
  return op;
}

OpSpec Dropout(int32_t input, double rate) {
  OpSpec op = Plain(OpKind::kDropout, input);
  op.rate = rate;
  return op;
}

OpSpec Add(int32_t left, int32_t right) {
  OpSpec op = Plain(OpKind::kAdd, left);
  op.inputs = {left, right};
  return op;
}

}  // namespace runnel::zoo
