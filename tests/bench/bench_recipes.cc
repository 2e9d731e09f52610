// Accuracy of recipes on one thread, without any pipeline: a model from its initial weights, SGD at
// the model's rate and a tenth of it in the last third of the steps. Prints a line of JSON a run.
//
//   bench_recipes --data FOLDER --recipe NAME [--model lenet] [--seed 1] [--epochs 3] [--samples 0]
//                 [--rate 0.01] [--momentum 0.9] [--backend cpu]
//
// FOLDER: MNIST's four files as they are published, or CIFAR-10's binary batches. Samples are
// normalised to mean 0 and deviation 1 of their pixels, and shuffled in each epoch. --samples: of an
// epoch; 0: all. Recipe afp also prints the share of micro-batches in 8, 16 and 24 bits, of the input,
// weight and gradient of each operator, ui8 what its clipping turns the gradient's direction by, the mean
// of every 50th step by layer; each of ui8's layers is a stage of its own, so that nothing else takes the place of what is
// read.

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/backends/backend.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/model/width_state.h"
#include "proto/base/random.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {
namespace {

constexpr int64_t kBatch = 64;
constexpr int kCifarRecord = 3073;
constexpr int64_t kStepsADeviation = 50;

struct Samples {
  std::vector<float> values;
  std::vector<int32_t> labels;
};

struct Flags {
  std::string data, recipe, model = "lenet", backend = "cpu";
  uint64_t seed = 1;
  int epochs = 3;
  int64_t samples = 0;
  double rate = 0.01, momentum = 0.9;
};

std::string Unpacked(const std::string& path) {
  std::string bytes;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return bytes;
  std::vector<char> part(1 << 20);
  for (int count = 0; (count = gzread(file, part.data(), static_cast<unsigned>(part.size()))) > 0;)
    bytes.append(part.data(), static_cast<size_t>(count));
  gzclose(file);
  return bytes;
}

void Normalise(std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float x : values) sum += x;
  const double mean = sum / static_cast<double>(values.size());
  for (const float x : values) squares += (x - mean) * (x - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
  for (float& x : values) x = static_cast<float>((x - mean) / deviation);
}

Samples Mnist(const std::string& folder, const std::string& part) {
  constexpr size_t kImageHeader = 16, kLabelHeader = 8;
  const std::string images = Unpacked(folder + "/" + part + "-images-idx3-ubyte.gz");
  const std::string labels = Unpacked(folder + "/" + part + "-labels-idx1-ubyte.gz");
  Samples samples;
  for (size_t i = kImageHeader; i < images.size(); ++i)
    samples.values.push_back(static_cast<unsigned char>(images[i]));
  for (size_t i = kLabelHeader; i < labels.size(); ++i)
    samples.labels.push_back(static_cast<unsigned char>(labels[i]));
  return samples;
}

void AddCifar(const std::string& path, Samples& samples) {
  const std::string bytes = Unpacked(path);
  for (size_t at = 0; at + kCifarRecord <= bytes.size(); at += kCifarRecord) {
    samples.labels.push_back(static_cast<unsigned char>(bytes[at]));
    for (size_t i = 1; i < kCifarRecord; ++i)
      samples.values.push_back(static_cast<unsigned char>(bytes[at + i]));
  }
}

Samples Load(const std::string& folder, bool trains) {
  Samples samples = Mnist(folder, trains ? "train" : "t10k");
  if (samples.labels.empty() && !trains) AddCifar(folder + "/test_batch.bin", samples);
  for (int i = 1; samples.labels.size() < 50'000 && trains && i <= 5; ++i)
    AddCifar(folder + "/data_batch_" + std::to_string(i) + ".bin", samples);
  if (!samples.values.empty()) Normalise(samples.values);
  return samples;
}

// Central's first weights in place of the harness'.
void SetInitialState(const ModelSpec& model, const std::string& recipe, uint64_t seed,
                     TestStage& stage) {
  const auto infos = *InferShapes(model, kBatch);
  const NumberFormat format = (*FindRecipe(recipe))->numbers;
  for (const StateTensor& tensor : stage.program.state.tensors) {
    const LayerState layer =
        InitialLayer(model, infos[static_cast<size_t>(tensor.layer)], tensor.layer, seed, format);
    for (const TensorData& data : layer.tensors) {
      if (data.name == tensor.spec.name)
        std::memcpy(reinterpret_cast<std::byte*>(stage.data(tensor.storage)) + tensor.offset_bytes,
                    data.bytes.data(), data.bytes.size());
    }
  }
}

class Run {
 public:
  Run(const Flags& flags, const Samples& train, const Samples& test)
      : flags_(flags), train_(train), test_(test), model_(*MakeModel(flags.model)) {
    backend_ = *MakeBackend(flags.backend, 1);
    pipeline_ = *TestPipeline::Make(model_, Cuts(), kBatch, backend_.get(), flags.seed,
                                    Checks::kOff, Steps::kApart, flags.recipe.c_str());
    for (const auto& part : pipeline_.stages)
      SetInitialState(model_, flags.recipe, flags.seed, *part);
    x_.resize(static_cast<size_t>(stage().program.input.elements()));
    labels_.resize(kBatch);
  }

  bool Train() {
    std::vector<int64_t> order(train_.labels.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto all = static_cast<int64_t>(order.size());
    const int64_t steps = (flags_.samples > 0 ? std::min(flags_.samples, all) : all) / kBatch;
    StepContext context;
    context.run_seed = flags_.seed;
    context.step_labels = kBatch;
    context.momentum = flags_.momentum;
    context.weight_decay = 5e-4;
    context.loss_scale = flags_.recipe.rfind("fp8_chunk", 0) == 0 ? 1024 : 1;
    for (int epoch = 0; epoch < flags_.epochs; ++epoch) {
      Shuffle(epoch, order);
      for (int64_t step = 0; step < steps; ++step, ++context.step) {
        const bool is_late = context.step * 3 >= 2 * steps * flags_.epochs;
        context.learning_rate = flags_.rate * (is_late ? 0.1 : 1);
        Take(train_, order, step * kBatch);
        if (!pipeline_.ForwardBackward(x_.data(), labels_.data(), context).ok()) return false;
        if (context.step % kStepsADeviation == 0) AddDeviations();
        loss_ += (pipeline_.Loss() / kBatch - loss_) * 0.02;
        if (!pipeline_.Update(context).ok()) return false;
        context.sequence = context.sequence.next();
      }
    }
    return true;
  }

  // Of the whole batches of the test samples.
  double Accuracy() {
    std::vector<int64_t> order(test_.labels.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    double correct = 0, count = 0;
    for (int64_t at = 0; at + kBatch <= static_cast<int64_t>(order.size()); at += kBatch) {
      Take(test_, order, at);
      if (!pipeline_.Forward(Part::kForwardEval, x_.data(), labels_.data(), {}).ok()) return 0;
      correct += pipeline_.Correct();
      count += kBatch;
    }
    return 100 * correct / count;
  }

  nlohmann::json Widths() {
    static constexpr const char* kRows[] = {"weight", "input", "", "gradient"};
    nlohmann::json layers = nlohmann::json::object();
    for (const StateTensor& tensor : stage().program.state.tensors) {
      if (tensor.spec.role != TensorRole::kWidths) continue;
      const auto* states = reinterpret_cast<const WidthState*>(
          reinterpret_cast<const std::byte*>(stage().data(tensor.storage)) + tensor.offset_bytes);
      nlohmann::json& layer = layers[model_.layers[static_cast<size_t>(tensor.layer)].name];
      for (int64_t row : {0, 1, 3}) {
        const WidthState& state = states[row];
        const float total = std::max(1.0f, state.used[0] + state.used[1] + state.used[2]);
        layer[kRows[row]] = {{"measured", state.measured},
                             {"bits", state.bits},
                             {"share_8", state.used[0] / total},
                             {"share_16", state.used[1] / total},
                             {"share_24", state.used[2] / total}};
      }
    }
    return layers;
  }

  nlohmann::json Deviations() const {
    nlohmann::json layers = nlohmann::json::object();
    for (const auto& [layer, sum] : deviations_) layers[layer] = sum.first / sum.second;
    return layers;
  }

  double loss() const { return loss_; }

 private:
  std::vector<int> Cuts() const {
    std::vector<int> cuts;
    for (int layer = 1; layer < model_.layer_count() && flags_.recipe == "ui8"; ++layer)
      cuts.push_back(layer);
    return cuts;
  }

  void AddDeviations() {
    for (const auto& stage : pipeline_.stages) {
      for (const Instruction& one : stage->program.part(Part::kWeightGradient)) {
        if (one.code != OpCode::kCounterDeviation) continue;
        const Buffer& buffer = stage->program.buffers[one.inputs[1]];
        auto& [sum, count] = deviations_[model_.layers[static_cast<size_t>(one.layer)].name];
        sum +=
            *reinterpret_cast<const float*>(stage->bindings[buffer.storage] + buffer.offset_bytes);
        ++count;
      }
    }
  }

  TestStage& stage() { return *pipeline_.stages[0]; }

  void Shuffle(int epoch, std::vector<int64_t>& order) const {
    const CounterRandom random(flags_.seed, RandomPurpose::kTest, 38, static_cast<uint64_t>(epoch));
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random.Below(i, static_cast<uint32_t>(i))]);
  }

  void Take(const Samples& samples, const std::vector<int64_t>& order, int64_t begin) {
    const int64_t size = static_cast<int64_t>(x_.size()) / kBatch;
    for (int64_t i = 0; i < kBatch; ++i) {
      const int64_t at = order[static_cast<size_t>(begin + i)];
      std::copy_n(samples.values.begin() + at * size, size, x_.begin() + i * size);
      labels_[static_cast<size_t>(i)] = samples.labels[static_cast<size_t>(at)];
    }
  }

  const Flags& flags_;
  const Samples& train_;
  const Samples& test_;
  const ModelSpec model_;
  std::unique_ptr<Backend> backend_;
  TestPipeline pipeline_;
  std::vector<float> x_;
  std::vector<int32_t> labels_;
  double loss_ = 2.3;
  std::map<std::string, std::pair<double, int64_t>> deviations_;  // sums and counts, by layer
};

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--data") flags.data = value;
    if (name == "--recipe") flags.recipe = value;
    if (name == "--model") flags.model = value;
    if (name == "--backend") flags.backend = value;
    if (name == "--seed") flags.seed = std::stoull(value);
    if (name == "--epochs") flags.epochs = std::stoi(value);
    if (name == "--samples") flags.samples = std::stoll(value);
    if (name == "--rate") flags.rate = std::stod(value);
    if (name == "--momentum") flags.momentum = std::stod(value);
  }
  return flags;
}

int Main(int argc, char** argv) {
  const Flags flags = Parse(argc, argv);
  const Samples train = Load(flags.data, true), test = Load(flags.data, false);
  if (train.labels.empty() || test.labels.empty() || !FindRecipe(flags.recipe).ok()) {
    std::cerr << "give --data FOLDER with MNIST or CIFAR-10, and --recipe NAME\n";
    return 2;
  }
  Run run(flags, train, test);
  if (!run.Train()) return 1;
  const nlohmann::json line = {
      {"recipe", flags.recipe}, {"model", flags.model},     {"seed", flags.seed},
      {"epochs", flags.epochs}, {"samples", flags.samples}, {"accuracy", run.Accuracy()},
      {"loss", run.loss()},     {"widths", run.Widths()},   {"deviations", run.Deviations()}};
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::Main(argc, argv); }
