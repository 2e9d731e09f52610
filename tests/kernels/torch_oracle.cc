#include "tests/kernels/torch_oracle.h"

#include <ATen/ATen.h>
#include <malloc.h>

#include <map>
#include <string>
#include <utility>

#include "proto/base/random.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {

struct TorchOracle::Impl {
  ModelSpec model;
  OracleOptions options;
  std::vector<StateTensor> layout;
  std::vector<at::Tensor> state;
  std::vector<at::Tensor> momentum;
  std::map<std::pair<int, std::string>, at::Tensor> by_name;

  at::ScalarType dtype() const { return options.float64 ? at::kDouble : at::kFloat; }
  at::Tensor Format(const at::Tensor& x) const {
    if (!options.channels_last || x.dim() != 4) return x;
    return x.contiguous(at::MemoryFormat::ChannelsLast);
  }
  at::Tensor Of(int layer, int op, const char* role) const {
    const auto it = by_name.find({layer, model.layers[layer].OpName(op) + "." + role});
    return it == by_name.end() ? at::Tensor() : it->second;
  }

  // Of the model's last lstm_cell so far, and what its gates pay for what they choose.
  at::Tensor state_of_cell;
  mutable at::Tensor price;

  const OpSpec& Gate(int layer, const OpSpec& reader) const {
    return model.layers[layer].ops[static_cast<size_t>(reader.inputs[1]) - 1];
  }
  at::Tensor Choice(const at::Tensor& logits, const OpSpec& gate, const StepContext& context) const;
  static at::Tensor Running(const at::Tensor& choice, const OpSpec& gate);
  static at::Tensor Unpacked(const at::Tensor& packed, const at::Tensor& choice,
                             const OpSpec& gate);
  static at::Tensor Cell(const at::Tensor& sums, const at::Tensor& state);
  at::Tensor Mask(const at::Tensor& x, int layer, int op, double rate,
                  const StepContext& context) const;
  at::Tensor Conv(const at::Tensor& x, const OpSpec& op, int layer, int index) const;
  at::Tensor Pool(const at::Tensor& x, const OpSpec& op) const;
  static at::Tensor Attention(const at::Tensor& x, const OpSpec& op);
  static at::Tensor Padded(const at::Tensor& x, const OpSpec& op, double value);
  at::Tensor Apply(const OpSpec& op, int layer, int index, const std::vector<at::Tensor>& values,
                   const StepContext& context) const;
};

at::Tensor TorchOracle::Impl::Mask(const at::Tensor& x, int layer, int op, double rate,
                                   const StepContext& context) const {
  const CounterRandom random(context.run_seed, RandomPurpose::kDropout,
                             static_cast<uint64_t>(layer * 256 + op),
                             static_cast<uint64_t>(context.sequence.value()));
  at::Tensor mask = at::empty(x.sizes(), at::kFloat);
  float* m = mask.data_ptr<float>();
  const float scale = static_cast<float>(1.0 / (1.0 - rate));
  for (int64_t i = 0; i < mask.numel(); ++i) {
    m[i] = random.Uniform(static_cast<uint64_t>(i)) >= rate ? scale : 0.0f;
  }
  return mask.to(dtype());
}

at::Tensor TorchOracle::Impl::Conv(const at::Tensor& x, const OpSpec& op, int layer,
                                   int index) const {
  const at::Tensor weight = Of(layer, index, "weight"), bias = Of(layer, index, "bias");
  if (op.pads_by_side()) {
    OpSpec inner = op;
    inner.padding = {0, 0};
    inner.padding_end = {-1, -1};
    return Conv(Padded(x, op, 0), inner, layer, index);
  }
  if (x.dim() == 3) {
    return at::conv1d(x, weight, bias, op.stride[0], op.padding[0], op.dilation[0], op.groups);
  }
  return at::conv2d(x, weight, bias, op.stride, op.padding, op.dilation, op.groups);
}

at::Tensor TorchOracle::Impl::Padded(const at::Tensor& x, const OpSpec& op, double value) {
  std::vector<int64_t> pads;  // the last axis first
  for (int axis = static_cast<int>(x.dim()) - 3; axis >= 0; --axis) {
    pads.push_back(op.padding[static_cast<size_t>(axis)]);
    pads.push_back(op.end_padding(axis));
  }
  return at::constant_pad_nd(x, pads, value);
}

at::Tensor TorchOracle::Impl::Pool(const at::Tensor& x, const OpSpec& op) const {
  const bool max = op.kind == OpKind::kMaxPool;
  if (op.is_padded() && (op.pads_by_side() || !max)) {
    OpSpec inner = op;
    inner.padding = {0, 0};
    inner.padding_end = {-1, -1};
    if (max) return Pool(Padded(x, op, -std::numeric_limits<double>::infinity()), inner);
    const at::Tensor sums = Pool(Padded(x, op, 0), inner);  // over the taps
    return op.counts_padding ? sums : sums / Pool(Padded(at::ones_like(x), op, 0), inner);
  }
  if (x.dim() == 3) {
    return max ? at::max_pool1d(x, op.kernel[0], op.stride[0], op.padding[0])
               : at::avg_pool1d(x, op.kernel[0], op.stride[0]);
  }
  return max ? at::max_pool2d(x, op.kernel, op.stride, op.padding)
             : at::avg_pool2d(x, op.kernel, op.stride);
}

// One-hot, with the gradient of the probabilities. Nothing is explored.
at::Tensor TorchOracle::Impl::Choice(const at::Tensor& logits, const OpSpec& gate,
                                     const StepContext& context) const {
  const at::Tensor p = logits.softmax(1);
  std::vector<double> costs;
  for (int option = 0; option < OptionCount(gate); ++option)
    costs.push_back(CostOfOption(gate, option) * gate.rate * context.price_sign);
  const at::Tensor paid = (p * at::tensor(costs, p.options())).sum();
  price = price.defined() ? price + paid : paid;
  return at::one_hot(logits.argmax(1), OptionCount(gate)).to(p.dtype()) + (p - p.detach());
}

at::Tensor TorchOracle::Impl::Running(const at::Tensor& choice, const OpSpec& gate) {
  const at::Tensor chosen = choice.detach().argmax(1);
  std::vector<int64_t> running;
  for (int64_t i = 0; i < chosen.size(0); ++i) {
    if (!Skips(gate, static_cast<int>(chosen[i].item<int64_t>()))) running.push_back(i);
  }
  return at::tensor(running, at::kLong);
}

at::Tensor TorchOracle::Impl::Unpacked(const at::Tensor& packed, const at::Tensor& choice,
                                       const OpSpec& gate) {
  const at::Tensor running = Running(choice, gate);
  at::Tensor mask = choice.gather(1, choice.detach().argmax(1, /*keepdim=*/true))
                        .index_select(0, running)
                        .reshape({-1, 1, 1, 1});
  std::vector<int64_t> sizes = packed.sizes().vec();
  sizes[0] = choice.size(0);
  return at::zeros(sizes, packed.options()).index_copy(0, running, packed * mask);
}

// By LibTorch's own LSTM, whose sums are those that its input gives by a unit matrix.
at::Tensor TorchOracle::Impl::Cell(const at::Tensor& sums, const at::Tensor& state) {
  const int64_t width = sums.size(1), units = width / 4;
  const at::Tensor before =
      state.defined() ? state : at::zeros({sums.size(0), 2 * units}, sums.options());
  const auto [h, c] = at::lstm_cell(
      sums, {before.narrow(1, 0, units), before.narrow(1, units, units)},
      at::eye(width, sums.options()), at::zeros({width, units}, sums.options()), {}, {});
  return at::cat({h, c}, 1);
}

at::Tensor TorchOracle::Impl::Attention(const at::Tensor& x, const OpSpec& op) {
  const auto heads = [&](const at::Tensor& t) {
    return t.reshape({t.size(0), t.size(1), op.heads, -1}).transpose(1, 2);
  };
  const std::vector<at::Tensor> parts = x.chunk(3, 2);
  const at::Tensor q = heads(parts[0]), k = heads(parts[1]), v = heads(parts[2]);
  const at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor ones = at::ones({x.size(1), x.size(1)}, at::kBool);
  const at::Tensor later = op.bidirectional ? ones.logical_not() : ones.triu(1);
  const at::Tensor shares =
      scores.masked_fill(later, -std::numeric_limits<double>::infinity()).softmax(-1);
  return shares.matmul(v).transpose(1, 2).flatten(2);
}

at::Tensor TorchOracle::Impl::Apply(const OpSpec& op, int layer, int index,
                                    const std::vector<at::Tensor>& values,
                                    const StepContext& context) const {
  const at::Tensor& x = values[op.inputs[0]];
  switch (op.kind) {
    case OpKind::kConv:
      return Conv(x, op, layer, index);
    case OpKind::kLinear:
      return at::linear(x, Of(layer, index, "weight"), Of(layer, index, "bias"));
    case OpKind::kBatchNorm:
      return at::batch_norm(x, Of(layer, index, "scale"), Of(layer, index, "shift"),
                            Of(layer, index, "running_mean"), Of(layer, index, "running_var"), true,
                            op.momentum, op.epsilon, false);
    case OpKind::kRelu:
      return at::relu(x);
    case OpKind::kRelu6:
      return at::hardtanh(x, 0, 6);
    case OpKind::kDropout:
      return options.counter_masks ? x * Mask(x, layer, index, op.rate, context)
                                   : at::dropout(x, op.rate, true);
    case OpKind::kMaxPool:
    case OpKind::kAvgPool:
      return Pool(x, op);
    case OpKind::kGlobalAvgPool:
      return x.flatten(2).mean(2);
    case OpKind::kAdd:
      return x + values[op.inputs[1]];
    case OpKind::kSigmoid:
      return at::sigmoid(x);
    case OpKind::kHardSigmoid:
      return at::hardsigmoid(x);
    case OpKind::kLeakyRelu:
      return at::leaky_relu(x, op.rate);
    case OpKind::kMultiply: {
      at::Tensor factor = values[op.inputs[1]];
      while (factor.dim() < x.dim()) factor = factor.unsqueeze(-1);
      return x * factor;
    }
    case OpKind::kConcat:
      return at::cat({x, values[op.inputs[1]]}, 1);
    case OpKind::kSlice:
      return x.narrow(1, op.begin, op.out_channels);
    case OpKind::kShuffle:
      return x.unflatten(1, {op.groups, x.size(1) / op.groups}).transpose(1, 2).flatten(1, 2);
    case OpKind::kFlatten:
      return x.flatten(1);
    case OpKind::kGate:
      return Choice(x, op, context);
    case OpKind::kPack:
      return x.index_select(0, Running(values[op.inputs[1]], Gate(layer, op)));
    case OpKind::kUnpack:
      return Unpacked(x, values[op.inputs[1]], Gate(layer, op));
    case OpKind::kLstmCell:
      return Cell(x, op.inputs.size() > 1 ? values[op.inputs[1]] : at::Tensor());
    case OpKind::kCarriedState:
      return state_of_cell;
    case OpKind::kEmbedding:
      return op.positions
                 ? at::embedding(Of(layer, index, "weight"), x) + Of(layer, index, "positions")
                 : at::embedding(Of(layer, index, "weight"), x);
    case OpKind::kLayerNorm:
      return at::layer_norm(x, {x.size(-1)}, Of(layer, index, "scale"), Of(layer, index, "shift"),
                            op.epsilon);
    case OpKind::kGelu:
      return at::gelu(x, op.exact ? "none" : "tanh");
    case OpKind::kAttention:
      return Attention(x, op);
  }
  return {};
}

TorchOracle::TorchOracle(const ModelSpec& model, const StateLayout& layout, OracleOptions options,
                         const float* parameters, const float* statistics)
    : impl_(std::make_unique<Impl>()) {
  impl_->model = model;
  impl_->options = options;
  impl_->layout = layout.tensors;
  for (const StateTensor& tensor : layout.tensors) {
    const float* base = tensor.storage == Storage::kParameters ? parameters : statistics;
    const auto& dims = tensor.spec.shape.dims();
    at::Tensor value = at::from_blob(const_cast<float*>(base) + tensor.offset_bytes / 4,
                                     at::IntArrayRef(dims.data(), dims.size()))
                           .to(impl_->dtype(), /*non_blocking=*/false, /*copy=*/true);
    value = impl_->Format(value);
    value.set_requires_grad(tensor.storage == Storage::kParameters);
    impl_->state.push_back(value);
    impl_->momentum.push_back(at::zeros_like(value).set_requires_grad(false));
    impl_->by_name[{tensor.layer, tensor.spec.name}] = value;
  }
}

TorchOracle::~TorchOracle() = default;

double TorchOracle::ForwardBackward(const float* x, const int32_t* labels, int64_t batch,
                                    const StepContext& context) {
  std::vector<int64_t> sizes = {batch};
  for (int64_t d : impl_->model.input.dims()) sizes.push_back(d);
  const bool tokens = impl_->model.tokens() > 0;
  at::Tensor value = at::from_blob(const_cast<float*>(x), sizes, tokens ? at::kInt : at::kFloat);
  value = tokens ? value.to(at::kLong) : impl_->Format(value.to(impl_->dtype()));
  for (at::Tensor& tensor : impl_->state) tensor.mutable_grad() = at::Tensor();
  for (int layer = 0; layer < impl_->model.layer_count(); ++layer) {
    std::vector<at::Tensor> values = {value};
    const std::vector<OpSpec>& ops = impl_->model.layers[layer].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      values.push_back(impl_->Apply(ops[i], layer, static_cast<int>(i), values, context));
      if (ops[i].kind == OpKind::kLstmCell) impl_->state_of_cell = values.back();
    }
    value = values.back();
  }
  value = value.flatten(0, -2);
  const at::Tensor target =
      at::from_blob(const_cast<int32_t*>(labels), {value.size(0)}, at::kInt).to(at::kLong);
  const at::Tensor loss = at::cross_entropy_loss(value, target, {}, at::Reduction::Sum,
                                                 /*ignore_index=*/-100, context.label_smoothing);
  at::Tensor total = loss / static_cast<double>(context.step_labels);
  if (impl_->price.defined()) total = total + impl_->price;
  total.backward();
  impl_->price = impl_->state_of_cell = at::Tensor();
  return loss.item<double>();
}

void TorchOracle::Update(const StepContext& context) {
  for (size_t i = 0; i < impl_->state.size(); ++i) {
    if (impl_->layout[i].storage != Storage::kParameters) continue;
    at::Tensor weight = impl_->state[i].detach();
    const at::Tensor gradient = impl_->state[i].grad().add(weight, context.weight_decay);
    impl_->momentum[i].mul_(context.momentum).add_(gradient);
    weight.add_(impl_->momentum[i], -context.learning_rate);
  }
}

namespace {

std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().view({-1});
  return std::vector<double>(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
}

}  // namespace

StateValues TorchOracle::Gradients() const {
  StateValues result;
  for (const at::Tensor& tensor : impl_->state) {
    result.push_back(tensor.grad().defined() ? Values(tensor.grad()) : std::vector<double>());
  }
  return result;
}

StateValues TorchOracle::State() const {
  StateValues result;
  for (const at::Tensor& tensor : impl_->state) result.push_back(Values(tensor));
  return result;
}

void TuneAllocatorForTorch() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace runnel
