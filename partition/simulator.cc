#include "partition/simulator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// The activity that ends at an event's time. Ends of the same time are handled in this order, then
// by index.
enum class Ends : uint8_t { kCompute, kCodec, kSend, kDelay };

struct Event {
  int64_t time_ns;
  Ends what;
  int32_t index;  // a stage; for kSend and kDelay a link's way: 2 * link + (up ? 1 : 0)
  int64_t order;  // order of events that are otherwise alike
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    if (a.time_ns != b.time_ns) return a.time_ns > b.time_ns;
    if (a.what != b.what) return a.what > b.what;
    if (a.index != b.index) return a.index > b.index;
    return a.order > b.order;
  }
};

// Jobs that wait, first in first out, in a ring that grows.
class Fifo {
 public:
  bool empty() const { return count_ == 0; }
  void Push(int32_t job) {
    if (count_ == ring_.size()) Grow();
    ring_[(head_ + count_++) & (ring_.size() - 1)] = job;
  }
  int32_t Pop() {
    const int32_t job = ring_[head_];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --count_;
    return job;
  }

 private:
  void Grow() {
    std::vector<int32_t> larger(std::max<size_t>(8, ring_.size() * 2));
    for (size_t i = 0; i < count_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
    ring_ = std::move(larger);
    head_ = 0;
  }
  std::vector<int32_t> ring_;  // a power of two
  size_t head_ = 0;
  size_t count_ = 0;
};

// Jobs of the codec lane. Payloads of one kind come in ascending sequence, so counting them is
// enough.
enum Job : uint8_t { kEncodeDown, kEncodeUp, kDecodeDown, kDecodeUp };

struct Stage {
  StageOrder order;
  StageProgress done;
  Action running = Action::kDrained;  // kDrained: nothing
  int64_t inputs = 0;                 // activations that are here, decoded
  int64_t gradients = 0;              // gradients that are here, decoded
  Fifo codec;
  bool codec_busy = false;
  uint8_t codec_job = 0;
  int32_t host = -1;   // position among the hosts that are shared; -1: a processor of its own
  double rest_ns = 0;  // of the running action on such a host, as of Host::since_ns
};

// Of a host's work where one more stage computes than it has processors, or several: threads take
// turns, find their caches cold, and do not always stand where a processor is free. VGG-11 of three
// and four workers on two processors.
constexpr double kCrowdingLoss = 0.15;

// Processors that more stages than those compute on: the running ones share them evenly.
struct Host {
  double processors = 0;
  std::vector<size_t> running;  // stages
  int64_t since_ns = 0;
  int64_t awaited = -1;  // Event::order of the end that comes next; other ends there are void

  double Speed() const {
    return SpeedOnHost(processors, static_cast<double>(std::max<size_t>(1, running.size())));
  }
};

// A queue for the bandwidth: one a way, or one a medium.
struct Line {
  Fifo waiting;  // directions that wait
  bool busy = false;
};

// One stretch from an empty pipeline to an empty pipeline.
class Stretch {
 public:
  Stretch(const SimulatedPipeline& pipeline, int64_t micro_batches, SimulatedRun& run)
      : pipeline_(pipeline), boundary_(micro_batches), run_(run) {
    stages_.resize(pipeline.stages.size());
    for (size_t i = 0; i < stages_.size(); ++i) {
      stages_[i].order = {pipeline.caps[i], pipeline.deferred_weight_gradients.empty()
                                                ? 0
                                                : pipeline.deferred_weight_gradients[i]};
    }
    AddHosts();
    std::map<int32_t, size_t> of_media;
    for (size_t way = 0; way < 2 * pipeline.links.size(); ++way) {
      const int32_t medium = Way(way).medium;
      line_of_.push_back(medium < 0 ? way : of_media.try_emplace(medium, way).first->second);
    }
    lines_.resize(line_of_.size());
    stages_.front().inputs = micro_batches;
    stages_.back().gradients = micro_batches;
  }

  // Nanoseconds it takes. Actions are reported `first` sequences and `start_ns` later.
  int64_t Run(const SimulatedActionFn& on_action, int64_t first, int64_t start_ns) {
    on_action_ = on_action ? &on_action : nullptr;
    first_ = first;
    start_ns_ = start_ns;
    for (size_t i = 0; i < stages_.size(); ++i) StartCompute(i);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (IsVoid(event)) continue;
      now_ns_ = event.time_ns;
      switch (event.what) {
        case Ends::kCompute:
          LeaveHost(event.index);
          ComputeEnds(event.index);
          break;
        case Ends::kCodec:
          CodecEnds(event.index);
          break;
        case Ends::kSend:
          SendEnds(event.index);
          break;
        case Ends::kDelay:
          Arrived(event.index);
          break;
      }
    }
    return now_ns_;
  }

 private:
  void AddHosts() {
    std::map<int32_t, int> stages_on;
    for (const StageTimes& stage : pipeline_.stages) {
      if (stage.host >= 0) ++stages_on[stage.host];
    }
    std::map<int32_t, int32_t> number_of;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const int32_t host = pipeline_.stages[i].host;
      if (host < 0 || stages_on[host] <= pipeline_.host_processors[host]) continue;
      const auto [number, is_new] =
          number_of.try_emplace(host, static_cast<int32_t>(hosts_.size()));
      if (is_new) hosts_.emplace_back().processors = pipeline_.host_processors[host];
      stages_[i].host = number->second;
    }
  }

  bool IsVoid(const Event& event) const {
    if (event.what != Ends::kCompute) return false;
    const int32_t host = stages_[event.index].host;
    return host >= 0 && hosts_[host].awaited != event.order;
  }

  // What the host's stages did since the last change, at the speed that they had.
  void Advance(Host& host) {
    const double done = static_cast<double>(now_ns_ - host.since_ns) * host.Speed();
    for (const size_t i : host.running) stages_[i].rest_ns -= done;
    host.since_ns = now_ns_;
  }

  void AwaitNextEnd(Host& host) {
    host.awaited = -1;
    if (host.running.empty()) return;
    const size_t next =
        *std::min_element(host.running.begin(), host.running.end(), [this](size_t a, size_t b) {
          return std::pair(stages_[a].rest_ns, a) < std::pair(stages_[b].rest_ns, b);
        });
    host.awaited = next_order_;
    const double after_ns = std::ceil(std::max(0.0, stages_[next].rest_ns) / host.Speed());
    At(static_cast<int64_t>(after_ns), Ends::kCompute, next);
  }

  void EnterHost(size_t i, int64_t ns) {
    Host& host = hosts_[stages_[i].host];
    Advance(host);
    stages_[i].rest_ns = static_cast<double>(ns);
    host.running.push_back(i);
    AwaitNextEnd(host);
  }

  void LeaveHost(size_t i) {
    if (stages_[i].host < 0) return;
    Host& host = hosts_[stages_[i].host];
    Advance(host);
    std::erase(host.running, i);
    AwaitNextEnd(host);
  }

  void At(int64_t after_ns, Ends what, size_t index) {
    events_.push({now_ns_ + after_ns, what, static_cast<int32_t>(index), next_order_++});
  }

  void StartCompute(size_t i) {
    Stage& stage = stages_[i];
    if (stage.running != Action::kDrained) return;
    const StageTimes& times = pipeline_.stages[i];
    switch (NextAction(stage.order, boundary_, stage.done)) {
      case Action::kForward:
        if (stage.inputs > stage.done.forwards) Begin(i, Action::kForward, times.forward_ns);
        return;
      case Action::kInputGradient:
        if (stage.gradients > stage.done.input_gradients) {
          Begin(i, Action::kInputGradient, times.input_gradient_ns);
        }
        return;
      case Action::kWeightGradient:
        return Begin(i, Action::kWeightGradient, times.weight_gradient_ns);
      case Action::kDrained:
        return;
    }
  }

  // Whether the stage before hears when a forward begins here, instead of getting a gradient.
  bool HearsOfForwards(size_t i) const { return i > 0 && pipeline_.stages[i - 1].forward_only; }

  void Begin(size_t i, Action action, int64_t ns) {
    stages_[i].running = action;
    if (action == Action::kForward && HearsOfForwards(i)) {
      const size_t up = 2 * i - 1;
      At(Way(up).delay_ns, Ends::kDelay, up);
    }
    run_.compute_busy_ns[i] += ns;
    if (stages_[i].host >= 0) return EnterHost(i, ns);
    At(ns, Ends::kCompute, i);
  }

  void ComputeEnds(size_t i) {
    Stage& stage = stages_[i];
    const Action action = std::exchange(stage.running, Action::kDrained);
    switch (action) {
      case Action::kForward:
        Tell(i, action, stage.done.forwards++);
        if (i + 1 < stages_.size()) Code(i, kEncodeDown);
        break;
      case Action::kInputGradient:
        Tell(i, action, stage.done.input_gradients++);
        if (i > 0 && !HearsOfForwards(i)) Code(i, kEncodeUp);
        break;
      case Action::kWeightGradient:
        Tell(i, action, stage.done.weight_gradients++);
        break;
      case Action::kDrained:
        return;
    }
    StartCompute(i);
  }

  void Tell(size_t stage, Action action, int64_t sequence) const {
    if (on_action_ == nullptr) return;
    (*on_action_)(static_cast<int>(stage), action, first_ + sequence, start_ns_ + now_ns_);
  }

  int64_t CodecNs(size_t i, uint8_t job) const {
    switch (job) {
      case kEncodeDown:
        return pipeline_.links[i].down.encode_ns;
      case kEncodeUp:
        return pipeline_.links[i - 1].up.encode_ns;
      case kDecodeDown:
        return pipeline_.links[i - 1].down.decode_ns;
      default:
        return pipeline_.links[i].up.decode_ns;
    }
  }

  // A payload comes to the codec lane. What takes no time does not go there (identity).
  void Code(size_t i, uint8_t job) {
    if (CodecNs(i, job) == 0) return Coded(i, job);
    stages_[i].codec.Push(job);
    StartCodec(i);
  }

  void StartCodec(size_t i) {
    Stage& stage = stages_[i];
    if (stage.codec_busy || stage.codec.empty()) return;
    stage.codec_busy = true;
    stage.codec_job = static_cast<uint8_t>(stage.codec.Pop());
    const int64_t ns = CodecNs(i, stage.codec_job);
    run_.codec_busy_ns[i] += ns;
    At(ns, Ends::kCodec, i);
  }

  void CodecEnds(size_t i) {
    stages_[i].codec_busy = false;
    Coded(i, stages_[i].codec_job);
    StartCodec(i);
  }

  void Coded(size_t i, uint8_t job) {
    switch (job) {
      case kEncodeDown:
        return Send(2 * i);
      case kEncodeUp:
        return Send(2 * (i - 1) + 1);
      case kDecodeDown:
        ++stages_[i].inputs;
        return StartCompute(i);
      default:
        ++stages_[i].gradients;
        return StartCompute(i);
    }
  }

  const WayTimes& Way(size_t way) const {
    const LinkTimes& link = pipeline_.links[way / 2];
    return way % 2 == 0 ? link.down : link.up;
  }
  Line& LineOf(size_t way) { return lines_[line_of_[way]]; }

  void Send(size_t way) {
    LineOf(way).waiting.Push(static_cast<int32_t>(way));
    StartSend(way);
  }

  void StartSend(size_t way) {
    Line& line = LineOf(way);
    if (line.busy || line.waiting.empty()) return;
    line.busy = true;
    way = static_cast<size_t>(line.waiting.Pop());
    const int64_t ns = Way(way).send_ns;
    (way % 2 == 0 ? run_.down_busy_ns : run_.up_busy_ns)[way / 2] += ns;
    At(ns, Ends::kSend, way);
  }

  void SendEnds(size_t way) {
    LineOf(way).busy = false;
    if (Way(way).delay_ns == 0) {
      Arrived(way);
    } else {
      At(Way(way).delay_ns, Ends::kDelay, way);
    }
    StartSend(way);
  }

  void Arrived(size_t way) {
    if (way % 2 == 0) {
      Code(way / 2 + 1, kDecodeDown);
    } else {
      Code(way / 2, kDecodeUp);
    }
  }

  const SimulatedPipeline& pipeline_;
  const int64_t boundary_;
  SimulatedRun& run_;
  std::vector<Stage> stages_;
  std::vector<Host> hosts_;
  std::vector<size_t> line_of_;  // by way
  std::vector<Line> lines_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  int64_t next_order_ = 0;
  int64_t now_ns_ = 0;
  const SimulatedActionFn* on_action_ = nullptr;
  int64_t first_ = 0;
  int64_t start_ns_ = 0;
};

void AddScaled(std::vector<int64_t>& sums, const std::vector<int64_t>& values, int64_t times) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i] * times;
}

void AddStretch(const SimulatedRun& one, int64_t times, SimulatedRun& run) {
  run.total_ns += one.total_ns * times;
  AddScaled(run.compute_busy_ns, one.compute_busy_ns, times);
  AddScaled(run.codec_busy_ns, one.codec_busy_ns, times);
  AddScaled(run.down_busy_ns, one.down_busy_ns, times);
  AddScaled(run.up_busy_ns, one.up_busy_ns, times);
}

SimulatedRun EmptyRun(const SimulatedPipeline& pipeline) {
  const std::vector<int64_t> stages(pipeline.stages.size(), 0);
  const std::vector<int64_t> links(pipeline.links.size(), 0);
  return {0, stages, stages, links, links};
}

}  // namespace

double SpeedOnHost(double processors, double stages) {
  if (stages <= processors) return 1;
  return processors / stages * (1 - kCrowdingLoss * std::min(1.0, stages - processors));
}

absl::StatusOr<SimulatedRun> Simulate(const SimulatedPipeline& pipeline,
                                      const SimulatedActionFn& on_action) {
  RUNNEL_RETURN_IF_ERROR(CheckPipeline(pipeline));
  const int64_t every = pipeline.drain_every > 0
                            ? std::min(pipeline.drain_every, pipeline.micro_batches)
                            : pipeline.micro_batches;
  const int64_t full = pipeline.micro_batches / every;
  const int64_t rest = pipeline.micro_batches % every;
  const int64_t pauses = full + (rest > 0 ? 1 : 0) - 1;
  SimulatedRun run = EmptyRun(pipeline);
  const auto stretch = [&](int64_t micro_batches, int64_t first, int64_t start_ns) {
    SimulatedRun one = EmptyRun(pipeline);
    one.total_ns = Stretch(pipeline, micro_batches, one).Run(on_action, first, start_ns);
    return one;
  };
  if (on_action) {
    for (int64_t i = 0; i < full; ++i) {
      AddStretch(stretch(every, i * every, run.total_ns + i * pipeline.drain_pause_ns), 1, run);
    }
  } else {
    AddStretch(stretch(every, 0, 0), full, run);
  }
  if (rest > 0) {
    AddStretch(stretch(rest, full * every, run.total_ns + full * pipeline.drain_pause_ns), 1, run);
  }
  run.total_ns += pauses * pipeline.drain_pause_ns;
  return run;
}

absl::StatusOr<double> SteadyPeriodNs(SimulatedPipeline pipeline, int64_t micro_batches) {
  if (pipeline.caps.empty()) return absl::InvalidArgumentError("simulation: no stage");
  int64_t kept = pipeline.caps[0];
  for (int64_t deferred : pipeline.deferred_weight_gradients) {
    kept = std::max(kept, pipeline.caps[0] + deferred);
  }
  const bool as_many_as_needed = micro_batches == 0;
  if (as_many_as_needed) micro_batches = 24 * std::min<int64_t>(kept, 1 << 20) + 240;
  pipeline.drain_every = 0;
  pipeline.micro_batches = micro_batches;
  RUNNEL_RETURN_IF_ERROR(CheckPipeline(pipeline));
  if (as_many_as_needed && BoundIsExact(pipeline)) return BoundNs(pipeline);
  const int64_t from = micro_batches / 2;
  const int64_t to = micro_batches - kept - 1;
  if (to <= from)
    return absl::InvalidArgumentError(absl::StrCat(
        "simulation: ", micro_batches, " micro-batches do not fill a stage that keeps ", kept));
  // The line with the least squares, of numbers about their middles.
  const double middle = static_cast<double>(from + to) / 2;
  double first_ns = -1;
  double products = 0;
  double squares = 0;
  const auto note = [&](int stage, Action action, int64_t sequence, int64_t end_ns) {
    if (stage != 0 || action != Action::kInputGradient || sequence < from || sequence > to) return;
    if (first_ns < 0) first_ns = static_cast<double>(end_ns);
    const double number = static_cast<double>(sequence) - middle;
    products += number * (static_cast<double>(end_ns) - first_ns);
    squares += number * number;
  };
  RUNNEL_RETURN_IF_ERROR(Simulate(pipeline, note).status());
  return std::max(products / squares, BoundNs(pipeline));
}

}  // namespace runnel
