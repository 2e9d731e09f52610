#include "tests/kernels/stage_harness.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "proto/base/host/huge_pages.h"
#include "proto/base/model/side_values.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

struct PartAccess {
  std::vector<Storage> reads;
  std::vector<Storage> writes;
};

// Whether the state of errors and of the input-gradient's weights moves.
bool KeepsWidths(const Program& program) {
  for (const StateTensor& tensor : program.state.tensors)
    if (tensor.spec.role == TensorRole::kWidths) return true;
  return false;
}

// What backend.h allows a part to touch.
PartAccess AccessOf(Part part, const Program& program, Steps steps) {
  using enum Storage;
  PartAccess access;
  // kNewParameters is kParameters.
  const std::vector<Storage> step = {kParameters, kNewParameters, kSlots};
  const bool alone = steps == Steps::kAlone;
  switch (part) {
    case Part::kForward:
      access = {{kInput, kLabels, kParameters}, {kOutput, kMetrics, kStatistics, kScratch}};
      if (!alone) access.writes.push_back(kStash);
      return access;
    case Part::kForwardEval:
      return {{kInput, kLabels, kParameters, kStatistics}, {kOutput, kMetrics, kScratch}};
    case Part::kInputGradient:
      access = {{kInput, kOutputGradient, kParameters, kStatistics},
                {kInputGradient, kStash, kScratch}};
      if (KeepsWidths(program)) access.writes.push_back(kStatistics);
      if (!program.early_weight_gradients) break;
      if (!alone) access.writes.push_back(kGradients);
      if (alone) access.writes.insert(access.writes.end(), step.begin(), step.end());
      break;
    case Part::kWeightGradient:
      access = {{kInput, kOutputGradient, kParameters}, {kGradients, kStash, kScratch}};
      if (alone) access.writes.insert(access.writes.end(), step.begin(), step.end());
      break;
    case Part::kUpdate:
      return {{kGradients}, alone ? std::vector<Storage>() : step};
  }
  if (program.backward_reads_output) access.reads.push_back(kOutput);
  return access;
}

std::array<int64_t, kStorageCount> AreaBytes(const Program& p) {
  const int64_t parameters = p.state.parameter_bytes;
  const int64_t labels =
      p.batch * LabelsPerSample(p.output) * static_cast<int64_t>(sizeof(int32_t));
  return {p.input_bytes,
          p.output_bytes,
          p.output_gradient_bytes,
          p.input_gradient_bytes,
          labels,
          16,
          parameters,
          0,  // kNewParameters is kParameters
          p.state.gradient_bytes,
          parameters,
          p.state.statistic_bytes,
          p.stash_bytes,
          p.scratch_bytes};
}

}  // namespace

AlignedBytes::AlignedBytes(int64_t bytes)
    : data_(static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes > 0 ? bytes : 1),
                                                    std::align_val_t{AreaAlignment(bytes)})),
            Free{std::align_val_t{AreaAlignment(bytes)}}),
      size_(bytes) {
  AdviseHugePages(data_.get(), bytes);
  std::memset(data_.get(), 0, static_cast<size_t>(bytes));
}

void FillState(const StateLayout& layout, uint64_t seed, float* parameters, float* statistics) {
  int tensor_in_layer = 0;
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const StateTensor& t = layout.tensors[i];
    const bool same = i > 0 && layout.tensors[i - 1].layer == t.layer;
    tensor_in_layer = same ? tensor_in_layer + 1 : 0;
    const CounterRandom random(seed, RandomPurpose::kTest, static_cast<uint64_t>(t.layer),
                               static_cast<uint64_t>(tensor_in_layer));
    float* values = (t.storage == Storage::kParameters ? parameters : statistics) +
                    t.offset_bytes / static_cast<int64_t>(sizeof(float));
    const int64_t count = t.spec.shape.elements();
    const double fan_in = static_cast<double>(count / t.spec.shape[0]);
    if (t.spec.role == TensorRole::kWidths) continue;  // nothing measured yet
    const bool near_one = t.spec.role == TensorRole::kScale ||
                          t.spec.role == TensorRole::kRunningVar ||
                          t.spec.role == TensorRole::kGain;
    const double spread =
        t.spec.role == TensorRole::kWeight ? std::sqrt(2.0 / fan_in) : (near_one ? 0.1 : 0.05);
    for (int64_t e = 0; e < count; ++e) {
      values[e] = static_cast<float>((near_one ? 1.0 : 0.0) +
                                     spread * random.Normal(static_cast<uint64_t>(e)));
    }
  }
}

absl::StatusOr<std::unique_ptr<TestStage>> TestStage::Make(const ModelSpec& model, int first,
                                                           int last, int64_t batch,
                                                           Backend* backend, Checks checks,
                                                           Steps steps, const char* recipe_name,
                                                           int most_forward_bits) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* found, FindRecipe(recipe_name));
  Recipe recipe = *found;
  if (CarriesState(model))
    recipe.numbers.beside = SideValuesOf(/*has_cost_target=*/false, /*carries_state=*/true);
  auto stage = std::make_unique<TestStage>();
  stage->checks = checks;
  stage->steps = steps;
  const CompileOptions options = {.max_batch = batch,
                                  .recomputes = backend->traits().recomputes,
                                  .one_in_flight = steps == Steps::kAlone,
                                  .steps_in_backward = steps == Steps::kAlone,
                                  .stash = backend->traits().stash,
                                  .integer_products = backend->traits().multiplies_codes,
                                  .masks_stash = backend->traits().masks_stash,
                                  .most_forward_bits = most_forward_bits};
  RUNNEL_ASSIGN_OR_RETURN(stage->program, CompileStage(model, first, last, batch, recipe, options));
  const std::array<int64_t, kStorageCount> bytes = AreaBytes(stage->program);
  for (int i = 0; i < kStorageCount; ++i) {
    stage->memory.push_back(std::make_unique<AlignedBytes>(bytes[i]));
    stage->bindings.base[i] = stage->memory.back()->data();
  }
  stage->bindings[Storage::kNewParameters] = stage->bindings[Storage::kParameters];
  RUNNEL_ASSIGN_OR_RETURN(stage->executable, backend->Prepare(stage->program));
  return stage;
}

void TestStage::Poison(Storage storage) {
  float* values = data(storage);
  for (int64_t i = 0; i < bytes(storage) / static_cast<int64_t>(sizeof(float)); ++i) {
    values[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

absl::Status TestStage::Run(Part part, const StepContext& context) {
  if (checks == Checks::kOff) return executable->Run(part, context, bindings);
  PoisonBefore(part, context);
  return RunChecked(part, context);
}

void TestStage::PoisonBefore(Part part, const StepContext& context) {
  const bool kept = steps == Steps::kAlone && part == Part::kInputGradient;
  if (part != Part::kWeightGradient && !kept) Poison(Storage::kScratch);
  if (part == Part::kForward) Poison(Storage::kStash);
  if (part == Part::kForward || part == Part::kForwardEval) Poison(Storage::kOutput);
  if (part == Part::kInputGradient) {
    Poison(Storage::kInputGradient);
    if (!program.backward_reads_output) Poison(Storage::kOutput);
  }
  const Part first = program.early_weight_gradients ? Part::kInputGradient : Part::kWeightGradient;
  if (part == first && !context.accumulate && steps == Steps::kApart) {
    // Old gradients have to be overwritten; the padding between tensors stays zero.
    for (const StateTensor& tensor : program.state.tensors) {
      if (tensor.storage != Storage::kParameters) continue;
      float* gradient =
          data(Storage::kGradients) + tensor.offset_bytes / static_cast<int64_t>(sizeof(float));
      for (int64_t i = 0; i < tensor.spec.shape.elements(); ++i) gradient[i] = 1e30f;
    }
  }
}

absl::Status TestStage::RunChecked(Part part, const StepContext& context) {
  const PartAccess access = AccessOf(part, program, steps);
  Bindings visible;
  for (const auto* list : {&access.reads, &access.writes}) {
    for (Storage storage : *list) visible[storage] = bindings[storage];
  }
  std::array<bool, kStorageCount> writable = {};
  for (Storage storage : access.writes) writable[static_cast<int>(storage)] = true;
  std::vector<std::vector<std::byte>> before;
  for (int i = 0; i < kStorageCount; ++i) {
    before.emplace_back(bindings.base[i], bindings.base[i] + memory[i]->size());
  }
  RUNNEL_RETURN_IF_ERROR(executable->Run(part, context, visible));
  for (int i = 0; i < kStorageCount; ++i) {
    if (writable[i] || before[i].empty()) continue;
    if (std::memcmp(before[i].data(), bindings.base[i], before[i].size()) != 0) {
      return absl::InternalError(absl::StrCat("part ", static_cast<int>(part), " wrote to ",
                                              Name(static_cast<Storage>(i))));
    }
  }
  return absl::OkStatus();
}

std::vector<std::vector<float>> TestStage::Tensors(Storage storage) {
  std::vector<std::vector<float>> tensors;
  const bool statistics = storage == Storage::kStatistics;
  for (const StateTensor& tensor : program.state.tensors) {
    if ((tensor.storage == Storage::kStatistics) != statistics) continue;
    const float* begin = data(storage) + tensor.offset_bytes / static_cast<int64_t>(sizeof(float));
    tensors.emplace_back(begin, begin + tensor.spec.shape.elements());
  }
  return tensors;
}

absl::StatusOr<TestPipeline> TestPipeline::Make(const ModelSpec& model, std::vector<int> cuts,
                                                int64_t batch, Backend* backend, uint64_t seed,
                                                Checks checks, Steps steps, const char* recipe,
                                                int most_forward_bits) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* found, FindRecipe(recipe));
  if (found->numbers.integer_parameters())
    return absl::InvalidArgumentError(absl::StrCat(recipe, ": its weights are no floats"));
  TestPipeline result;
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(model.layer_count());
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(
        auto stage, TestStage::Make(model, cuts[i], cuts[i + 1] - 1, batch, backend, checks, steps,
                                    recipe, most_forward_bits));
    FillState(stage->program.state, seed, stage->data(Storage::kParameters),
              stage->data(Storage::kStatistics));
    result.stages.push_back(std::move(stage));
  }
  return result;
}

absl::Status TestPipeline::Forward(Part part, const float* x, const int32_t* labels,
                                   const StepContext& context) {
  std::memcpy(stages.front()->data(Storage::kInput), x,
              static_cast<size_t>(stages.front()->bytes(Storage::kInput)));
  std::memcpy(stages.back()->data(Storage::kLabels), labels,
              static_cast<size_t>(stages.back()->bytes(Storage::kLabels)));
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i > 0) {
      std::memcpy(stages[i]->data(Storage::kInput), stages[i - 1]->data(Storage::kOutput),
                  static_cast<size_t>(stages[i]->bytes(Storage::kInput)));
    }
    RUNNEL_RETURN_IF_ERROR(stages[i]->Run(part, context));
  }
  const TestStage& last = *stages.back();
  logits.resize(static_cast<size_t>(last.program.output.elements()));
  const NumberType& type =
      TypeOf(IsFloat(last.program.values) ? last.program.values : DType::kFloat32);
  type.to_float({last.bindings[Storage::kOutput], logits.size() * type.bytes}, 0,
                absl::MakeSpan(logits));
  return absl::OkStatus();
}

absl::Status TestPipeline::ForwardBackward(const float* x, const int32_t* labels,
                                           const StepContext& context) {
  RUNNEL_RETURN_IF_ERROR(Forward(Part::kForward, x, labels, context));
  for (size_t i = stages.size(); i-- > 0;) {
    if (i + 1 < stages.size()) {
      std::memcpy(stages[i]->data(Storage::kOutputGradient),
                  stages[i + 1]->data(Storage::kInputGradient),
                  static_cast<size_t>(stages[i]->bytes(Storage::kOutputGradient)));
    }
    RUNNEL_RETURN_IF_ERROR(stages[i]->Run(Part::kInputGradient, context));
    RUNNEL_RETURN_IF_ERROR(stages[i]->Run(Part::kWeightGradient, context));
  }
  return absl::OkStatus();
}

absl::Status TestPipeline::Update(const StepContext& context) {
  for (auto& stage : stages) RUNNEL_RETURN_IF_ERROR(stage->Run(Part::kUpdate, context));
  return absl::OkStatus();
}

std::vector<std::vector<float>> TestPipeline::Tensors(Storage storage) {
  std::vector<std::vector<float>> tensors;
  for (auto& stage : stages) {
    for (auto& tensor : stage->Tensors(storage)) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace runnel
