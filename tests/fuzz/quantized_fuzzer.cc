// A model in integers: a graph, a file's payload in a right envelope (its digest keeps everything
// else out), a whole file, a graph that is cut at layers, or one layer of those that a stage gets.
// A graph that is taken must run.

#include "central/records/quantized_model.h"
#include "central/records/quantized_stages.h"
#include "kernels/models/graph_runner.h"
#include "kernels/models/quantize/quantizer.h"
#include "proto/base/model/initial_state.h"
#include "proto/crypto/sealed_file.h"
#include "tests/central/sample_model.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tests/support/scratch.h"
#include "worker/inference/graph_convert.h"

namespace runnel::fuzz {
namespace {

// More would only take time.
constexpr double kMostWork = 1e6;

ModelSpec Model() {
  ModelSpec model = testing::SampleModel();
  OpSpec dense = model.layers[0].ops[0];
  dense.groups = 1;
  dense.padding = {1, 1};
  model.layers.insert(model.layers.begin() + 1, {"conv2", {dense}});
  return model;
}

std::string GraphOf(inference::Scheme scheme, inference::WinogradUse winograd) {
  const ModelSpec model = Model();
  const inference::FoldedGraph folded =
      inference::FoldModel(model, InitialState(model, 5).value(), true).value();
  inference::QuantizeOptions options;
  options.calibration = inference::ParseCalibration("absmax").value();
  options.scheme = scheme;
  options.winograd = winograd;
  inference::Quantizer quantizer(folded, options);
  quantizer.Observe(0, std::vector<float>(model.input.elements(), 0.5f), 1);
  return SerializeGraph(quantizer.Finish().value());
}

void RequireOneLine(const absl::Status& status) {
  Require(status.message().find('\n') == absl::string_view::npos, "errors are one line");
}

void TryGraph(const absl::StatusOr<inference::Int8Graph>& graph) {
  if (!graph.ok()) return RequireOneLine(graph.status());
  if (graph->takes_codes || graph->gives_codes) return;
  double work = 0;
  for (const inference::Int8Node& n : graph->nodes) {
    const ConvShape& s = n.node.shape;
    work += static_cast<double>((s.in_h + 2 * s.pad_h) * (s.in_w + 2 * s.pad_w) * s.in_c);
    work += static_cast<double>(n.node.outputs()) * static_cast<double>(s.taps()) *
            static_cast<double>(s.group_in());
    if (work > kMostWork) return;
  }
  const std::vector<float> samples(graph->nodes[0].node.outputs(), 0.25f);
  const auto logits_on = [&](const char* backend) {
    std::vector<float> logits(graph->classes());
    const auto bytes = [](auto& values) {
      return reinterpret_cast<std::byte*>(const_cast<float*>(values.data()));
    };
    auto runner = inference::GraphRunner::Make(*graph, MakeBackend(backend, 1).value());
    if (!runner.ok()) RequireOneLine(runner.status());
    if (runner.ok()) {
      const absl::Status status = (*runner)->Run({bytes(samples), samples.size() * sizeof(float)},
                                                 1, {bytes(logits), logits.size() * sizeof(float)});
      if (!status.ok()) RequireOneLine(status);
    }
    return logits;
  };
  const std::vector<float> logits = logits_on("cpu"), plain = logits_on("ref");
  Require(logits == plain, "both executors give the same");
}

// The whole model, whose layers it may have merged in another way.
void TryCut(absl::string_view bytes) {
  const absl::StatusOr<QuantizedStages> stages = CutAtLayers(Model(), bytes);
  if (!stages.ok()) return RequireOneLine(stages.status());
  TryGraph(GraphOfLayers(stages->state, stages->model, 0, stages->model.layer_count() - 1));
}

const QuantizedStages& RightStages() {
  static const auto* const stages = new QuantizedStages(
      CutAtLayers(Model(), GraphOf(inference::Scheme::kSymmetric, inference::WinogradUse::kOff))
          .value());
  return *stages;
}

// One layer's nodes come from elsewhere.
void TryLayer(size_t layer, absl::string_view bytes) {
  QuantizedStages stages = RightStages();
  stages.state.layers[layer % stages.state.layers.size()].tensors[0].bytes = std::string(bytes);
  TryGraph(GraphOfLayers(stages.state, stages.model, 0, stages.model.layer_count() - 1));
}

}  // namespace

std::vector<std::string> Seeds() {
  QuantizedModel sample;
  sample.settings = WithDefaults(RunSettings(), testing::SampleDefaults(), "digits", 1);
  sample.graph = GraphOf(inference::Scheme::kSymmetric, inference::WinogradUse::kOff);
  ScratchDir folder;
  const std::string path = folder.path() + "/model.q8";
  Require(WriteQuantizedModel(sample, path).ok(), "a model is written");
  const std::string whole = Slurp(path);
  std::vector<std::string> seeds = {
      "p" + whole.substr(kSealBytes),
      "f" + whole,
      "g" + sample.graph,
      "g" + GraphOf(inference::Scheme::kAsymmetric, inference::WinogradUse::kOff),
      "g" + GraphOf(inference::Scheme::kSymmetric, inference::WinogradUse::kInt4Int6),
      "c" + sample.graph};
  for (const LayerState& layer : RightStages().state.layers)
    seeds.push_back(std::string("l") + static_cast<char>(layer.layer) + layer.tensors[0].bytes);
  return seeds;
}

void Try(absl::string_view input) {
  if (input.empty()) return;
  const char kind = input[0];
  input.remove_prefix(1);
  if (kind == 'g') return TryGraph(ParseGraph(input));
  if (kind == 'c') return TryCut(input);
  if (kind == 'l' && !input.empty())
    return TryLayer(static_cast<unsigned char>(input[0]), input.substr(1));
  constexpr SealedFormat kFormat = {"RNLQINT8", kQuantizedVersion, "quantised model"};
  const MemoryFile file(kind == 'p' ? Seal(kFormat, input) + std::string(input)
                                    : std::string(input));
  const absl::StatusOr<QuantizedModel> model = ReadQuantizedModel(file.path());
  if (model.ok()) return TryGraph(ParseGraph(model->graph));
  RequireOneLine(model.status());
}

}  // namespace runnel::fuzz
