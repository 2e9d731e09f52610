#include "tests/sim/simulated_pipeline.h"

#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/link_session.h"
#include "worker/stage/stage_runtime.h"

namespace runnel {
namespace {

constexpr int64_t kRedialNs = 1'000'000;

// One end of a link: the session, and the connections that come and go underneath.
class LinkEnd final : public ConnectionObserver {
 public:
  LinkEnd(Generation generation, LinkSession::DeliverFn deliver, std::function<void()> on_lost)
      : session_(std::move(deliver)), on_lost_(std::move(on_lost)) {
    session_.StartGeneration(generation);
  }
  // A connection tells of its end while it is destroyed: everything is still there.
  ~LinkEnd() override {
    on_lost_ = [] {};
    connection_.reset();
    session_.Disconnected();
  }

  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override {
    if (absl::Status status = session_.Received(std::move(frame)); !status.ok()) error = status;
    if (on_received) on_received();
  }
  void OnClosed(const absl::Status&) override {
    session_.Disconnected();
    on_lost_();
  }
  void Connected(std::shared_ptr<Connection> connection) {
    connection_ = connection;
    session_.Connected(std::move(connection));
  }
  LinkSession& session() { return session_; }

  absl::Status error;
  std::function<void()> on_received;

 private:
  LinkSession session_;
  std::function<void()> on_lost_;
  std::shared_ptr<Connection> connection_;
};

struct Stage {
  std::unique_ptr<StageRuntime> runtime;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<LinkEnd> upstream;
  std::unique_ptr<LinkEnd> downstream;
  std::unique_ptr<Listener> listener;
  int64_t codec_free_ns = 0;
  bool at_barrier = false;
};

class Simulation {
 public:
  explicit Simulation(const SimulatedPipelineOptions& options)
      : options_(options),
        random_(options.seed, RandomPurpose::kTest, 0, 0),
        network_({.seed = options.seed}),
        stages_(options.plan.stages.size()) {}

  absl::StatusOr<SimulatedPipelineResult> Run() {
    result_.actions.resize(stages_.size());
    if (options_.lose_every_ns > 0) options_.keep();
    RUNNEL_RETURN_IF_ERROR(Begin());
    if (options_.break_every_ns > 0) ScheduleBreak();
    if (options_.lose_every_ns > 0) ScheduleLoss();
    while (!done_ && error_.ok() && network_.Step()) {
    }
    RUNNEL_RETURN_IF_ERROR(error_);
    if (!done_) return absl::InternalError("the pipeline is stuck");
    result_.virtual_ns = network_.now_ns();
    for (const Stage& stage : stages_) {
      for (const auto* end : {&stage.upstream, &stage.downstream}) {
        if (*end != nullptr) result_.frames_resent += (*end)->session().counters().frames_resent;
      }
    }
    return std::move(result_);
  }

 private:
  int64_t RandomNs(int64_t most) {
    return most > 0 ? random_.Below(draws_++, static_cast<uint32_t>(most)) : 0;
  }
  std::string NameOf(int i) const { return absl::StrCat("stage", i, "-", life_); }
  Generation generation() const {
    return Generation(options_.plan.generation.value() + static_cast<int32_t>(life_));
  }
  int64_t FirstSequence() const { return barrier_ == 0 ? 0 : options_.barriers[barrier_ - 1]; }

  // What is still to come when a stage is lost never happens.
  void At(int64_t at_ns, std::function<void()> what) {
    network_.ScheduleAt(at_ns, [this, life = life_, what = std::move(what)] {
      if (life == life_) what();
    });
  }

  absl::Status Begin() {
    for (size_t i = 0; i < stages_.size(); ++i)
      RUNNEL_RETURN_IF_ERROR(MakeStage(static_cast<int>(i)));
    for (size_t i = 0; i + 1 < stages_.size(); ++i) Dial(static_cast<int>(i));
    GrantNext();
    return absl::OkStatus();
  }

  // The survivors keep their connections until they break: what still comes on them is of an older
  // generation, and nobody hears it.
  void LoseStage() {
    ++result_.losses;
    network_.BreakConnections(
        NameOf(static_cast<int>(random_.Below(draws_++, static_cast<uint32_t>(stages_.size())))));
    ++life_;
    lost_.push_back(std::exchange(stages_, std::vector<Stage>(stages_.size())));
    barrier_ = kept_;
    options_.go_back();
    if (absl::Status status = Begin(); !status.ok()) error_ = status;
  }

  void ScheduleLoss() {
    network_.ScheduleAt(network_.now_ns() + 1 + RandomNs(2 * options_.lose_every_ns), [this] {
      if (done_ || result_.losses == SimulatedPipelineOptions::kMostLosses) return;
      LoseStage();
      ScheduleLoss();
    });
  }

  absl::Status MakeStage(int i) {
    Stage& stage = stages_[i];
    StageRuntimeOptions options{.plan = options_.plan,
                                .stage = i,
                                .batching = options_.batching,
                                .first_sequence = Sequence(FirstSequence()),
                                .frozen_front = options_.frozen_front,
                                .clips = options_.clips};
    stage.runtime = std::make_unique<StageRuntime>(std::move(options));
    stage.transport = network_.NewTransport(NameOf(i));
    const auto deliver = [this, i, life = life_](Frame frame) {
      if (life != life_) return;
      const FrameHeader header = frame.header;
      Pump(i, stages_[i].runtime->Arrived(header.kind, header.sequence, header.samples,
                                          std::move(frame.payload)));
    };
    if (i > 0) {
      stage.upstream = std::make_unique<LinkEnd>(generation(), deliver, [] {});
      if (!stage.runtime->sends_gradients())
        stage.upstream->session().AcknowledgeAtOnce(FrameKind::kActivation);
      auto accept = [this, end = stage.upstream.get()](std::shared_ptr<Connection> connection) {
        // The transport wants its observer before the session talks.
        network_.ScheduleAt(network_.now_ns(), [end, connection] { end->Connected(connection); });
        return Accepted{end, options_.shaping};
      };
      RUNNEL_ASSIGN_OR_RETURN(
          stage.listener,
          stage.transport->Listen(absl::StrCat("10.0.", life_, ".", i, ":7000"), accept));
    }
    if (i + 1 < static_cast<int>(stages_.size())) {
      stage.downstream = std::make_unique<LinkEnd>(generation(), deliver, [this, i, life = life_] {
        if (life == life_) At(network_.now_ns() + kRedialNs, [this, i] { Dial(i); });
      });
      stage.downstream->on_received = [this, i, life = life_, end = stage.downstream.get()] {
        if (life != life_) return;
        Pump(i, stages_[i].runtime->Waiting(end->session().unacknowledged(FrameKind::kActivation)));
      };
    }
    return absl::OkStatus();
  }

  void Dial(int i) {
    if (done_) return;
    Stage& stage = stages_[i];
    auto connection = stage.transport->Dial(stages_[i + 1].listener->address(),
                                            stage.downstream.get(), options_.shaping);
    if (!connection.ok()) {
      error_ = connection.status();
      return;
    }
    stage.downstream->Connected(*std::move(connection));
  }

  void ScheduleBreak() {
    network_.ScheduleAt(network_.now_ns() + 1 + RandomNs(2 * options_.break_every_ns), [this] {
      if (done_) return;
      ++result_.breaks;
      network_.BreakConnections(
          NameOf(static_cast<int>(random_.Below(draws_++, static_cast<uint32_t>(stages_.size())))));
      ScheduleBreak();
    });
  }

  void GrantNext() {
    const int64_t from = FirstSequence();
    const Sequence limit(options_.barriers[barrier_++]);
    for (size_t i = 0; i < stages_.size(); ++i) {
      stages_[i].at_barrier = false;
      const int stage = static_cast<int>(i);
      At(network_.now_ns() + RandomNs(options_.max_action_ns),
         [this, stage, limit] { Pump(stage, stages_[stage].runtime->RunUntil(limit)); });
    }
    int64_t samples_ns = network_.now_ns();
    int64_t labels_ns = network_.now_ns();
    const int last = static_cast<int>(stages_.size()) - 1;
    for (int64_t s = from; s < limit.value(); ++s) {
      Feed(0, FrameKind::kInput, s, samples_ns += RandomNs(options_.max_action_ns));
      Feed(last, FrameKind::kLabels, s, labels_ns += RandomNs(options_.max_action_ns));
    }
  }

  void Feed(int stage, FrameKind kind, int64_t sequence, int64_t at_ns) {
    At(at_ns, [this, stage, kind, sequence] {
      const MicroBatch place = options_.batching.Locate(Sequence(sequence));
      Payload payload =
          kind == FrameKind::kInput ? options_.samples(place) : options_.labels(place);
      Pump(stage, stages_[stage].runtime->Arrived(kind, place.sequence, place.samples,
                                                  std::move(payload)));
    });
  }

  void Pump(int i, const absl::Status& status) {
    if (!status.ok() && error_.ok()) error_ = status;
    for (const auto* end : {&stages_[i].upstream, &stages_[i].downstream}) {
      if (*end != nullptr && !(*end)->error.ok()) error_ = (*end)->error;
    }
    if (!error_.ok()) return;
    for (Effect& effect : stages_[i].runtime->TakeEffects()) {
      std::visit([this, i](auto& one) { Carry(i, std::move(one)); }, effect);
    }
  }

  LinkEnd* EndOf(int i, Peer peer) {
    return peer == Peer::kUpstream     ? stages_[i].upstream.get()
           : peer == Peer::kDownstream ? stages_[i].downstream.get()
                                       : nullptr;
  }

  void Carry(int i, SendEffect effect) {
    Frame frame;
    frame.header.kind = effect.kind;
    frame.header.generation = generation();
    frame.header.sequence = effect.sequence;
    frame.header.samples = static_cast<uint32_t>(effect.samples);
    frame.payload = std::move(effect.payload);
    EndOf(i, effect.peer)->session().Send(std::move(frame));
  }

  void Carry(int i, AcknowledgeEffect effect) {
    LinkEnd* end = EndOf(i, effect.peer);
    if (end != nullptr) end->session().Acknowledge(effect.kind, generation(), effect.sequence);
  }

  // An action takes its time; what it computes does not depend on it.
  void Compute(int i, std::function<absl::StatusOr<StageCompute::Output>()> work) {
    At(network_.now_ns() + RandomNs(options_.max_action_ns), [this, i, work = std::move(work)] {
      absl::StatusOr<StageCompute::Output> output = work();
      if (!output.ok()) return Pump(i, output.status());
      Pump(i, stages_[i].runtime->ComputeDone({std::move(output->tensor),
                                               output->loss_sum,
                                               output->correct,
                                               {},
                                               std::move(output->squares)}));
    });
  }

  void Carry(int i, ForwardEffect effect) {
    absl::StrAppend(&result_.actions[i], "F", effect.place.sequence.value(), "/", effect.version,
                    " ");
    Compute(i, [this, i, effect = std::move(effect)] {
      return options_.compute[i]->Forward(effect.place, effect.input, effect.labels);
    });
  }
  void Carry(int i, InputGradientEffect effect) {
    absl::StrAppend(&result_.actions[i], "I", effect.place.sequence.value(), " ");
    Compute(i, [this, i, effect = std::move(effect)] {
      return options_.compute[i]->InputGradient(effect.place, effect.output_gradient);
    });
  }
  void Carry(int i, WeightGradientEffect effect) {
    absl::StrAppend(&result_.actions[i], "W", effect.place.sequence.value(), " ");
    Compute(i, [this, i, effect]() -> absl::StatusOr<StageCompute::Output> {
      RUNNEL_RETURN_IF_ERROR(options_.compute[i]->WeightGradient(effect.place, effect.step));
      StageCompute::Output output;
      if (effect.sums_squares) {
        RUNNEL_ASSIGN_OR_RETURN(output.squares, options_.compute[i]->GradientSquares());
      }
      return output;
    });
  }
  void Carry(int i, StepEffect effect) {
    absl::StrAppend(&result_.actions[i], "S", effect.place.step, " ");
    Compute(i, [this, i, effect]() -> absl::StatusOr<StageCompute::Output> {
      RUNNEL_RETURN_IF_ERROR(options_.compute[i]->Step(effect.place, effect.gradient_square));
      return StageCompute::Output();
    });
  }
  void Carry(int, EvaluateEffect) {
    error_ = absl::InternalError("nobody asked for an evaluation");
  }
  void Carry(int, EvaluationDoneEffect) {}
  void Carry(int i, BeginDryRunEffect) { NotAsked(i); }
  void Carry(int i, CompareGradientEffect) { NotAsked(i); }
  void Carry(int i, EndDryRunEffect) { NotAsked(i); }
  void Carry(int i, DryRunDoneEffect) { NotAsked(i); }
  void NotAsked(int) { error_ = absl::InternalError("nobody asked for a dry run"); }

  int64_t CodecLane(int i) {
    int64_t& free_ns = stages_[i].codec_free_ns;
    free_ns = std::max(free_ns, network_.now_ns()) + RandomNs(options_.max_action_ns / 4);
    return free_ns;
  }

  void Carry(int i, EncodeEffect effect) {
    At(CodecLane(i), [this, i, effect = std::move(effect)] {
      const MicroBatch& place = effect.place;
      const Shape shape =
          options_.output_shape(effect.direction == Direction::kForward ? i : i - 1, place.samples);
      Payload payload = pool_.Allocate(static_cast<size_t>(
          options_.codecs[i]->EncodedBytes(effect.direction, place, shape)));
      const absl::StatusOr<size_t> bytes = options_.codecs[i]->Encode(
          effect.direction, place, shape, effect.tensor.bytes(), payload.mutable_bytes());
      if (!bytes.ok()) return Pump(i, bytes.status());
      payload = Payload::CopyOf(payload.bytes().first(*bytes));
      Pump(i, stages_[i].runtime->Encoded(effect.direction, place.sequence, place.samples,
                                          std::move(payload)));
    });
  }

  void Carry(int i, DecodeEffect effect) {
    At(CodecLane(i), [this, i, effect = std::move(effect)] {
      const Shape shape = options_.output_shape(effect.direction == Direction::kForward ? i - 1 : i,
                                                effect.place.samples);
      Payload tensor = pool_.Allocate(
          static_cast<size_t>(options_.codecs[i]->TensorBytes(effect.direction, shape)));
      const absl::Status status = options_.codecs[i]->Decode(
          effect.direction, effect.place, effect.payload.bytes(), shape, tensor.mutable_bytes());
      Pump(i, status.ok() ? stages_[i].runtime->Decoded(effect.direction, effect.place.sequence,
                                                        std::move(tensor))
                          : status);
    });
  }

  void Carry(int i, BarrierEffect) {
    stages_[i].at_barrier = true;
    for (const Stage& stage : stages_) {
      if (!stage.at_barrier) return;
    }
    if (barrier_ == options_.barriers.size()) {
      done_ = true;
      return;
    }
    // Not at every barrier: the state of one may be on its way when a stage is lost.
    if (options_.lose_every_ns > 0 && RandomNs(2) == 0) {
      options_.keep();
      kept_ = barrier_;
    }
    GrantNext();
  }

  const SimulatedPipelineOptions& options_;
  CounterRandom random_;
  uint64_t draws_ = 0;
  BufferPool pool_;
  SimulatedNetwork network_;
  std::vector<Stage> stages_;
  std::vector<std::vector<Stage>> lost_;  // of earlier lives: frames still come to them
  int64_t life_ = 0;                      // recoveries so far
  size_t barrier_ = 0;                    // granted, counted
  size_t kept_ = 0;                       // of barrier_, when the last cut was kept
  bool done_ = false;
  absl::Status error_;
  SimulatedPipelineResult result_;
};

}  // namespace

absl::StatusOr<SimulatedPipelineResult> RunSimulated(const SimulatedPipelineOptions& options) {
  return Simulation(options).Run();
}

}  // namespace runnel
