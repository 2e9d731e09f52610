#include "tests/worker/stage/state/staleness_replay.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "compress/codec.h"
#include "kernels/ir/compiler.h"
#include "proto/base/plan/next_action.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/codecs/codec_schedule.h"
#include "proto/base/training/epoch_order.h"
#include "proto/base/training/rates/rate.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {
namespace {

using Floats = std::vector<float>;

// A value that crosses a boundary, by micro-batch.
using Crossing = std::map<int64_t, Floats>;

struct InFlight {
  size_t version;
  std::unique_ptr<AlignedBytes> ahead;  // look-ahead: weights of its own
  std::unique_ptr<AlignedBytes> stash, input, output, labels;
  // From input-gradient to weight-gradient.
  std::unique_ptr<AlignedBytes> output_gradient, scratch;
};

// The sending end of a boundary, one direction: a new encoder in the epoch in which its codec
// changes.
struct SendingEnd {
  std::optional<CodecSchedule> codecs;  // none: nothing goes this way
  EncoderKey key;
  std::unique_ptr<const Codec> codec;
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<Decoder> decoder;  // where the codec keeps samples

  absl::Status Enter(int64_t epoch) {
    const CodecId& id = codecs->steps()[codecs->StepIn(epoch)].codec;
    if (codec != nullptr && codec->name() == id.text()) return absl::OkStatus();
    RUNNEL_ASSIGN_OR_RETURN(codec, MakeCodec(id));
    encoder = codec->NewEncoder(key);
    decoder = codec->NewDecoder();
    return absl::OkStatus();
  }
};

struct Stage {
  std::map<int64_t, std::unique_ptr<TestStage>> by_samples;
  std::vector<std::unique_ptr<AlignedBytes>> versions;  // all of them
  std::unique_ptr<AlignedBytes> momentum, gradients, statistics;
  std::map<int64_t, InFlight> in_flight;
  StageProgress done;
  SendingEnd down, up;
  Crossing activations;  // sent down, decoded
  Crossing gradients_up;
};

std::unique_ptr<AlignedBytes> Copy(const Floats& values) {
  auto bytes = std::make_unique<AlignedBytes>(static_cast<int64_t>(values.size() * sizeof(float)));
  std::memcpy(bytes->data(), values.data(), values.size() * sizeof(float));
  return bytes;
}

class Replay {
 public:
  Replay(const StalenessReplayOptions& options, const Batching& batching)
      : options_(options), batching_(batching) {}

  absl::StatusOr<ModelState> Run(Backend* backend) {
    RUNNEL_RETURN_IF_ERROR(MakeStages(backend));
    for (int64_t barrier : options_.barriers) RUNNEL_RETURN_IF_ERROR(RunTo(barrier));
    return State();
  }

 private:
  int count() const { return static_cast<int>(stages_.size()); }
  bool has_loss(int i) const { return i + 1 == count(); }

  absl::Status MakeStages(Backend* backend) {
    const size_t stages = options_.plan.stages.size();
    stages_.resize(stages);
    for (size_t i = 0; i < stages; ++i) {
      Stage& stage = stages_[i];
      const StagePlan& plan = options_.plan.stages[i];
      for (int64_t samples : batching_.MicroBatchSizes()) {
        RUNNEL_ASSIGN_OR_RETURN(
            stage.by_samples[samples],
            TestStage::Make(options_.model, plan.first_layer, plan.last_layer, samples, backend));
      }
      const StateLayout& layout = stage.by_samples.begin()->second->program.state;
      stage.versions.push_back(std::make_unique<AlignedBytes>(layout.parameter_bytes));
      stage.momentum = std::make_unique<AlignedBytes>(layout.parameter_bytes);
      stage.gradients = std::make_unique<AlignedBytes>(layout.parameter_bytes);
      stage.statistics = std::make_unique<AlignedBytes>(layout.statistic_bytes);
      Exchange(stage, [](const TensorData& from, std::byte* to) {
        std::memcpy(to, from.bytes.data(), from.bytes.size());
      });
      const auto key = [&](RandomPurpose purpose, int boundary) {
        return EncoderKey{options_.training.seed, purpose, static_cast<uint64_t>(boundary),
                          plan.cap};
      };
      if (i + 1 < stages) {
        stage.down.codecs = options_.plan.links[i].codec_forward;
        stage.down.key = key(RandomPurpose::kCodecForward, plan.last_layer);
      }
      if (i > 0) {
        stage.up.codecs = options_.plan.links[i - 1].codec_backward;
        stage.up.key = key(RandomPurpose::kCodecBackward, plan.first_layer - 1);
      }
    }
    return absl::OkStatus();
  }

  // Calls visit(tensor of state_, its place in the stage's memory) for all tensors of the stage.
  template <typename Visit>
  void Exchange(Stage& stage, Visit visit) {
    for (const StateTensor& tensor : stage.by_samples.begin()->second->program.state.tensors) {
      LayerState& layer = state_.layers[tensor.layer];
      size_t momentum = 0;
      for (TensorData& data : layer.tensors) {
        const bool trainable =
            layer.slots.size() > momentum && layer.slots[momentum].name == data.name;
        if (data.name == tensor.spec.name) {
          std::byte* base = tensor.storage == Storage::kParameters ? stage.versions.back()->data()
                                                                   : stage.statistics->data();
          visit(data, base + tensor.offset_bytes);
          if (trainable) visit(layer.slots[momentum], stage.momentum->data() + tensor.offset_bytes);
        }
        if (trainable) ++momentum;
      }
    }
  }

  ModelState State() {
    for (Stage& stage : stages_) {
      Exchange(stage, [](TensorData& to, const std::byte* from) {
        std::memcpy(to.bytes.data(), from, to.bytes.size());
      });
    }
    return state_;
  }

  absl::Status RunTo(int64_t barrier) {
    for (bool moved = true; moved;) {
      moved = false;
      for (int i = 0; i < count(); ++i) {
        RUNNEL_ASSIGN_OR_RETURN(const bool acted, Act(i, barrier));
        moved = moved || acted;
      }
    }
    for (const Stage& stage : stages_) {
      if (stage.done.weight_gradients != barrier) return absl::InternalError("the replay is stuck");
    }
    return absl::OkStatus();
  }

  int64_t Boundary(const Stage& stage, int64_t barrier) const {
    if (!options_.plan.drains_each_step) return barrier;
    const int64_t step = batching_.Locate(Sequence(stage.done.weight_gradients)).step;
    return std::min(barrier, batching_.FirstSequence(step + 1).value());
  }

  absl::StatusOr<bool> Act(int i, int64_t barrier) {
    Stage& stage = stages_[i];
    switch (NextAction(options_.plan.stages[i].order(), Boundary(stage, barrier), stage.done)) {
      case Action::kForward:
        if (i > 0 && !stages_[i - 1].activations.contains(stage.done.forwards)) return false;
        RUNNEL_RETURN_IF_ERROR(Forward(i));
        return true;
      case Action::kInputGradient:
        if (!has_loss(i) && !stages_[i + 1].gradients_up.contains(stage.done.input_gradients)) {
          return false;
        }
        RUNNEL_RETURN_IF_ERROR(InputGradient(i));
        return true;
      case Action::kWeightGradient:
        RUNNEL_RETURN_IF_ERROR(WeightGradient(i));
        return true;
      case Action::kDrained:
        return false;
    }
    return false;
  }

  int64_t StepsOld(int i) const {
    const int64_t each = options_.training.micro_batches;
    return (options_.plan.stages[i].cap - 1 + each - 1) / each;
  }

  bool IsRaised(int i) const {
    return options_.plan.stages[i].cap > count() - i && StepsOld(i) > 3;
  }

  StepContext ContextOf(const MicroBatch& place, int i) const {
    StepContext context;
    context.run_seed = options_.training.seed;
    context.sequence = place.sequence;
    context.step_labels = place.step_samples;
    context.accumulate = !place.first_in_step;
    context.learning_rate = RunRate(options_.training, place.epoch, place.step);
    const int64_t steps = options_.training.stale_rate_steps;
    if (IsRaised(i) && place.step < steps) {
      const double first = 1.0 / static_cast<double>(StepsOld(i));
      context.learning_rate *=
          first + (1 - first) * static_cast<double>(place.step) / static_cast<double>(steps);
    }
    context.momentum = options_.training.momentum;
    context.weight_decay = options_.training.weight_decay;
    return context;
  }

  void Bind(Stage& stage, TestStage& run, InFlight& flight) {
    run.bindings[Storage::kParameters] =
        flight.ahead ? flight.ahead->data() : stage.versions[flight.version]->data();
    run.bindings[Storage::kSlots] = stage.momentum->data();
    run.bindings[Storage::kGradients] = stage.gradients->data();
    run.bindings[Storage::kStatistics] = stage.statistics->data();
    run.bindings[Storage::kStash] = flight.stash->data();
    run.bindings[Storage::kInput] = flight.input->data();
    run.bindings[Storage::kOutput] = flight.output->data();
    if (flight.labels != nullptr) run.bindings[Storage::kLabels] = flight.labels->data();
  }

  absl::StatusOr<Floats> Cross(SendingEnd& end, const Floats& values, const Shape& shape,
                               const MicroBatch& place) {
    RUNNEL_RETURN_IF_ERROR(end.Enter(place.epoch));
    std::vector<std::byte> payload(static_cast<size_t>(end.codec->EncodedBytes(shape).value()));
    std::vector<int64_t> samples;
    if (end.decoder != nullptr) {
      const std::vector<int64_t> order =
          EpochPermutation(options_.training.dataset_samples, options_.training.seed, place.epoch);
      const auto first = order.begin() + place.first_sample;
      samples.assign(first, first + place.samples);
      end.encoder->NameSamples(samples);
    }
    RUNNEL_RETURN_IF_ERROR(end.encoder->Encode(ViewOf(values, shape), place.sequence,
                                               place.first_in_epoch, absl::MakeSpan(payload)));
    Floats decoded(values.size());
    const MutableTensorView out = MutableViewOf(absl::MakeSpan(decoded), shape);
    RUNNEL_RETURN_IF_ERROR(end.decoder != nullptr ? end.decoder->Decode(payload, samples, out)
                                                  : end.codec->Decode(payload, out));
    return decoded;
  }

  // Where the momentum will have led when the micro-batches in flight have stepped.
  std::unique_ptr<AlignedBytes> Ahead(int i, const MicroBatch& place) const {
    const Stage& stage = stages_[i];
    const auto steps = static_cast<double>(
        place.step - batching_.Locate(Sequence(stage.done.weight_gradients)).step);
    const double share =
        IsRaised(i) ? options_.training.raised_look_ahead : options_.training.look_ahead;
    if (share == 0 || steps == 0) return nullptr;
    const auto distance = static_cast<float>(share * steps * ContextOf(place, i).learning_rate);
    const int64_t bytes = stage.by_samples.begin()->second->program.state.parameter_bytes;
    auto ahead = std::make_unique<AlignedBytes>(bytes);
    const float* newest = reinterpret_cast<const float*>(stage.versions.back()->data());
    const float* velocity = reinterpret_cast<const float*>(stage.momentum->data());
    float* out = reinterpret_cast<float*>(ahead->data());
    for (int64_t e = 0; e < bytes / 4; ++e) out[e] = newest[e] - distance * velocity[e];
    return ahead;
  }

  // FTPipeHD: the mean of the newest N - i versions, if micro-batches in flight use all but the
  // newest one.
  void Aggregate(int i, int64_t step) {
    Stage& stage = stages_[i];
    const auto count = static_cast<size_t>(this->count() - i);
    const int64_t every = options_.training.aggregate_every;
    if (every == 0 || (step + 1) % every != 0 || count < 2) return;
    for (size_t k = 1; k < count; ++k) {
      const bool used =
          std::any_of(stage.in_flight.begin(), stage.in_flight.end(), [&](const auto& flight) {
            return flight.first != stage.done.weight_gradients &&
                   flight.second.version + k + 1 == stage.versions.size();
          });
      if (!used) return;
    }
    const int64_t bytes = stage.by_samples.begin()->second->program.state.parameter_bytes;
    auto mean = std::make_unique<AlignedBytes>(bytes);
    for (int64_t e = 0; e < bytes / 4; ++e) {
      float sum = 0;
      for (size_t k = 0; k < count; ++k) {
        const auto& version = stage.versions[stage.versions.size() - 1 - k];
        sum += reinterpret_cast<const float*>(version->data())[e];
      }
      reinterpret_cast<float*>(mean->data())[e] = sum / static_cast<float>(count);
    }
    stage.versions.back() = std::move(mean);
  }

  absl::Status Forward(int i) {
    Stage& stage = stages_[i];
    const MicroBatch place = batching_.Locate(Sequence(stage.done.forwards));
    TestStage& run = *stage.by_samples[place.samples];
    Floats samples(static_cast<size_t>(options_.model.input.elements() * place.samples));
    std::vector<int32_t> labels(static_cast<size_t>(place.samples));
    options_.fill(place, absl::MakeSpan(samples), absl::MakeSpan(labels));
    InFlight& flight = stage.in_flight[stage.done.forwards];
    flight.version = stage.versions.size() - 1;
    flight.ahead = Ahead(i, place);
    flight.stash = std::make_unique<AlignedBytes>(run.program.stash_bytes);
    flight.input =
        Copy(i == 0 ? samples : stages_[i - 1].activations.extract(stage.done.forwards).mapped());
    flight.output = std::make_unique<AlignedBytes>(run.program.output.elements() * 4);
    if (has_loss(i)) {
      flight.labels = std::make_unique<AlignedBytes>(place.samples * 4);
      std::memcpy(flight.labels->data(), labels.data(), labels.size() * 4);
    }
    Bind(stage, run, flight);
    RUNNEL_RETURN_IF_ERROR(run.Run(Part::kForward, ContextOf(place, i)));
    ++stage.done.forwards;
    if (has_loss(i)) return absl::OkStatus();
    const float* out = reinterpret_cast<const float*>(flight.output->data());
    const Floats values(out, out + run.program.output.elements());
    RUNNEL_ASSIGN_OR_RETURN(stage.activations[place.sequence.value()],
                            Cross(stage.down, values, run.program.output, place));
    return absl::OkStatus();
  }

  absl::Status InputGradient(int i) {
    Stage& stage = stages_[i];
    const int64_t sequence = stage.done.input_gradients++;
    const MicroBatch place = batching_.Locate(Sequence(sequence));
    TestStage& run = *stage.by_samples[place.samples];
    InFlight& flight = stage.in_flight.at(sequence);
    Bind(stage, run, flight);
    if (!has_loss(i)) {
      Floats values = stages_[i + 1].gradients_up.extract(sequence).mapped();
      RUNNEL_RETURN_IF_ERROR(
          stage.down.encoder->Learn(ViewOf(values, run.program.output), place.sequence));
      RUNNEL_RETURN_IF_ERROR(
          stage.down.encoder->MaskGradient(absl::MakeSpan(values), place.sequence));
      flight.output_gradient = Copy(values);
      run.bindings[Storage::kOutputGradient] = flight.output_gradient->data();
    }
    AlignedBytes input_gradient(run.program.input.elements() * 4);
    run.bindings[Storage::kInputGradient] = input_gradient.data();
    RUNNEL_RETURN_IF_ERROR(run.Run(Part::kInputGradient, ContextOf(place, i)));
    flight.scratch = std::make_unique<AlignedBytes>(run.program.scratch_bytes);
    std::memcpy(flight.scratch->data(), run.bindings[Storage::kScratch],
                static_cast<size_t>(run.program.scratch_bytes));
    if (i == 0) return absl::OkStatus();
    const float* out = reinterpret_cast<const float*>(input_gradient.data());
    const Floats values(out, out + run.program.input.elements());
    RUNNEL_ASSIGN_OR_RETURN(stage.gradients_up[sequence],
                            Cross(stage.up, values, run.program.input, place));
    return absl::OkStatus();
  }

  absl::Status WeightGradient(int i) {
    Stage& stage = stages_[i];
    const MicroBatch place = batching_.Locate(Sequence(stage.done.weight_gradients));
    TestStage& run = *stage.by_samples[place.samples];
    InFlight& flight = stage.in_flight.at(stage.done.weight_gradients);
    Bind(stage, run, flight);
    if (flight.output_gradient != nullptr) {
      run.bindings[Storage::kOutputGradient] = flight.output_gradient->data();
    }
    std::memcpy(run.bindings[Storage::kScratch], flight.scratch->data(),
                static_cast<size_t>(run.program.scratch_bytes));
    const StepContext context = ContextOf(place, i);
    RUNNEL_RETURN_IF_ERROR(run.Run(Part::kWeightGradient, context));
    if (place.last_in_step) {
      auto next = std::make_unique<AlignedBytes>(run.program.state.parameter_bytes);
      run.bindings[Storage::kParameters] = stage.versions.back()->data();
      run.bindings[Storage::kNewParameters] = next->data();
      RUNNEL_RETURN_IF_ERROR(run.Run(Part::kUpdate, context));
      stage.versions.push_back(std::move(next));
      Aggregate(i, place.step);
    }
    ++stage.done.weight_gradients;
    stage.in_flight.erase(place.sequence.value());
    return absl::OkStatus();
  }

  const StalenessReplayOptions& options_;
  Batching batching_;
  ModelState state_ = options_.state;
  std::vector<Stage> stages_;
};

}  // namespace

absl::StatusOr<ModelState> ReplayStaleness(const StalenessReplayOptions& options,
                                           Backend* backend) {
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options.training));
  return Replay(options, batching).Run(backend);
}

}  // namespace runnel
