#include "worker/measure/backend_check.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ir/recipe.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

constexpr int64_t kSamples = 5;
constexpr int64_t kSteps = 2;  // the second one uses weights that the backend has changed

// Odd sizes, a stride and padding: edges of tiles, and channels that fill no vector.
ModelSpec SmallModel() {
  OpSpec conv = {.kind = OpKind::kConv, .inputs = {0}, .out_channels = 13};
  conv.kernel = {3, 3};
  conv.stride = {2, 2};
  conv.padding = {1, 1};
  const OpSpec relu = {.kind = OpKind::kRelu, .inputs = {1}};
  const OpSpec flatten = {.kind = OpKind::kFlatten, .inputs = {0}};
  const OpSpec linear = {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 11};
  ModelSpec model;
  model.name = "backend_check";
  model.input = {5, 9, 9};
  model.classes = 11;
  model.layers = {{"convolution", {conv, relu}}, {"product", {flatten, linear}}};
  return model;
}

struct Result {
  std::vector<double> losses;  // by step
  ModelState state;
};

absl::StatusOr<Result> Train(const ModelSpec& model, Backend& backend) {
  BufferPool pool;
  StageExecutorOptions options;
  options.model = model;
  options.last_layer = model.layer_count() - 1;
  options.training.batch_size = kSamples;
  options.training.dataset_samples = kSamples * kSteps;
  RUNNEL_ASSIGN_OR_RETURN(options.recipe, FindRecipe("niti"));
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options.training));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<StageExecutor> executor,
                          StageExecutor::Create(options, &backend, &pool));
  RUNNEL_RETURN_IF_ERROR(executor->DrawState());
  Result result;
  for (int64_t step = 0; step < kSteps; ++step) {
    const MicroBatch place = batching.Locate(Sequence(step));
    const auto stream = static_cast<uint64_t>(step);
    RUNNEL_ASSIGN_OR_RETURN(
        const StageCompute::Output forward,
        executor->Forward(place,
                          RandomTensor(pool, executor->input_shape(kSamples).elements(), stream),
                          RandomLabels(pool, kSamples, model.classes, stream)));
    RUNNEL_RETURN_IF_ERROR(executor->InputGradient(place, Payload()).status());
    RUNNEL_RETURN_IF_ERROR(executor->WeightGradient(place, /*step=*/true));
    result.losses.push_back(forward.loss_sum);
  }
  RUNNEL_ASSIGN_OR_RETURN(result.state, executor->ExportState());
  return result;
}

absl::Status CompareTensors(const std::string& layer, const TensorData& got,
                            const TensorData& wanted) {
  for (size_t i = 0; i < wanted.bytes.size(); ++i) {
    if (got.bytes[i] == wanted.bytes[i]) continue;
    return absl::DataLossError(absl::StrCat(
        "computes integers wrong: after ", kSteps, " steps byte ", i, " of ", wanted.bytes.size(),
        " of the ", layer, "'s ", wanted.name, " is ", int{static_cast<int8_t>(got.bytes[i])},
        ", on ref ", int{static_cast<int8_t>(wanted.bytes[i])}));
  }
  return absl::OkStatus();
}

// Has the parts of INT8 inference that training lacks: zeros of inputs and of weights, factors by
// channel, a sum, a mean.
inference::Int8Graph SmallGraph() {
  using inference::Int8Node;
  using inference::NodeKind;
  const CounterRandom random(/*seed=*/1, RandomPurpose::kTest, 0, 0);
  int64_t draw = 0;
  const auto number = [&](int32_t most) {
    return static_cast<int32_t>(random.Below(draw++, 2 * most + 1)) - most;
  };
  const auto node = [](NodeKind kind, int32_t input) {
    Int8Node n;
    n.node.kind = kind;
    n.node.inputs[0] = input;
    n.coding = {.scale = 1.0 / 16, .zero = -9};
    return n;
  };
  const auto conv = [&](int32_t input, int64_t in_c, int64_t out_c, int64_t kernel) {
    Int8Node n = node(NodeKind::kConv, input);
    ConvShape& s = n.node.shape;
    s.out_c = out_c;
    s.kernel_h = s.kernel_w = kernel;
    s.pad_h = s.pad_w = kernel / 2;
    for (int64_t i = 0; i < out_c * kernel * kernel * in_c; ++i) {
      n.weights.push_back(static_cast<int8_t>(number(127)));
    }
    for (int64_t o = 0; o < out_c; ++o) {
      n.bias.push_back(number(5000));
      n.weight_zeros.push_back(number(30));
    }
    return n;
  };
  inference::Int8Graph graph;
  Int8Node samples = node(NodeKind::kInput, -1);
  samples.node.shape.out_c = 5;
  samples.node.shape.out_h = samples.node.shape.out_w = 9;
  Int8Node first = conv(0, 5, 13, 3);
  first.node.clamp = inference::Clamp::kRelu;
  for (int o = 0; o < 13; ++o) first.factors.push_back(inference::FactorOf(0.002 / (o + 1)));
  Int8Node sum = node(NodeKind::kAdd, 1);
  sum.node.inputs[1] = 1;
  sum.factors = {{700'000, 20}, {300'001, 20}};
  Int8Node mean = node(NodeKind::kAvgPool, 2);
  mean.node.shape.kernel_h = mean.node.shape.kernel_w = 9;
  mean.factors = {inference::FactorOf(1.9 / 81)};
  Int8Node last = conv(3, 13, 11, 1);
  last.logit_scales.assign(11, 1.0 / 1024);
  graph.nodes = {samples, first, sum, mean, last};
  return graph;
}

absl::Status CheckGraph(Backend& backend) {
  inference::Int8Graph graph = SmallGraph();
  RUNNEL_RETURN_IF_ERROR(inference::CheckAndInfer(graph));
  const auto runner = inference::GraphRunner::Make(graph, backend);
  if (absl::IsUnimplemented(runner.status())) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(runner.status());
  BufferPool pool;
  const int64_t elements = kSamples * graph.nodes[0].node.outputs();
  const Payload samples = RandomTensor(pool, elements, /*stream=*/9);
  std::vector<float> got(kSamples * graph.classes()), wanted(got.size());
  const auto bytes = [](std::vector<float>& logits) {
    return absl::Span<std::byte>(reinterpret_cast<std::byte*>(logits.data()),
                                 logits.size() * sizeof(float));
  };
  const absl::Status status = (*runner)->Run(samples.bytes(), kSamples, bytes(got));
  // The backend reports that when it is asked to run.
  if (absl::IsUnimplemented(status)) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(status);
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> ref, MakeBackend("ref", 1));
  RUNNEL_ASSIGN_OR_RETURN(const auto oracle, inference::GraphRunner::Make(graph, *ref));
  RUNNEL_RETURN_IF_ERROR(oracle->Run(samples.bytes(), kSamples, bytes(wanted)));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    return absl::DataLossError(absl::StrCat("computes INT8 inference wrong: logit ",
                                            i % graph.classes(), " of sample ", i / graph.classes(),
                                            " is ", got[i], ", on ref ", wanted[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBackend(Backend& backend) {
  const ModelSpec model = SmallModel();
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> ref, MakeBackend("ref", 1));
  RUNNEL_ASSIGN_OR_RETURN(const Result wanted, Train(model, *ref));
  RUNNEL_ASSIGN_OR_RETURN(const Result got, Train(model, backend));
  for (size_t layer = 0; layer < wanted.state.layers.size(); ++layer) {
    const std::vector<TensorData>& tensors = wanted.state.layers[layer].tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      RUNNEL_RETURN_IF_ERROR(
          CompareTensors(model.layers[layer].name, got.state.layers[layer].tensors[i], tensors[i]));
    }
  }
  if (got.losses == wanted.losses) return CheckGraph(backend);
  return absl::DataLossError(absl::StrCat("computes integers wrong: the loss of step 1 is ",
                                          got.losses.front(), ", on ref ", wanted.losses.front()));
}

}  // namespace runnel
