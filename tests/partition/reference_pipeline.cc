#include "tests/partition/reference_pipeline.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "gtest/gtest.h"

namespace runnel {
namespace {

ActionEnds Unknown(const SimulatedPipeline& pipeline) {
  const std::vector<int64_t> none(pipeline.micro_batches, -1);
  const std::vector<std::vector<int64_t>> all(pipeline.stages.size(), none);
  return {all, all, all};
}

StageOrder OrderOf(const SimulatedPipeline& pipeline, size_t stage) {
  const std::vector<int64_t>& deferred = pipeline.deferred_weight_gradients;
  return {pipeline.caps[stage], deferred.empty() ? 0 : deferred[stage]};
}

}  // namespace

ActionEnds EndsByRecurrence(const SimulatedPipeline& pipeline) {
  const int stages = static_cast<int>(pipeline.stages.size());
  const int64_t count = pipeline.micro_batches;
  ActionEnds ends = Unknown(pipeline);
  // When a payload is at its destination, -1: not known yet.
  ActionEnds arrives = Unknown(pipeline);
  ActionEnds sent = Unknown(pipeline);
  for (int64_t b = 0; b < count; ++b) {
    arrives.forward[0][b] = 0;
    arrives.input_gradient[stages - 1][b] = 0;
  }
  std::vector<std::vector<ScheduledAction>> actions;
  for (int i = 0; i < stages; ++i) {
    actions.push_back(StageActions(OrderOf(pipeline, i), count, 0, 1));
  }
  std::vector<size_t> next(stages, 0);
  std::vector<int64_t> free(stages, 0);
  const auto send = [](const WayTimes& way, std::vector<int64_t>& sent, int64_t b, int64_t ready) {
    const int64_t begin = b == 0 ? ready : std::max(ready, sent[b - 1]);
    sent[b] = begin + way.send_ns;
    return sent[b] + way.delay_ns;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < stages; ++i) {
      for (; next[i] < actions[i].size(); ++next[i], moved = true) {
        const auto& [action, b, version] = actions[i][next[i]];
        const StageTimes& times = pipeline.stages[i];
        if (action == Action::kWeightGradient) {
          free[i] = ends.weight_gradient[i][b] = free[i] + times.weight_gradient_ns;
          continue;
        }
        const bool forward = action == Action::kForward;
        const int64_t input = (forward ? arrives.forward : arrives.input_gradient)[i][b];
        if (input < 0) break;
        const int64_t begin = std::max(free[i], input);
        if (forward) {
          free[i] = ends.forward[i][b] = begin + times.forward_ns;
          if (i + 1 < stages) {
            arrives.forward[i + 1][b] = send(pipeline.links[i].down, sent.forward[i], b, free[i]);
          }
        } else {
          free[i] = ends.input_gradient[i][b] = begin + times.input_gradient_ns;
          if (i > 0) {
            arrives.input_gradient[i - 1][b] =
                send(pipeline.links[i - 1].up, sent.input_gradient[i], b, free[i]);
          }
        }
      }
    }
  }
  return ends;
}

namespace {

// One thing that works on one job at a time. A job is any number.
struct Server {
  std::deque<int> waiting;
  std::optional<int> job;
  int64_t until = 0;
};

class Ticker {
 public:
  explicit Ticker(const SimulatedPipeline& pipeline)
      : p_(pipeline),
        stages_(static_cast<int>(pipeline.stages.size())),
        ends_(Unknown(pipeline)),
        compute_(stages_),
        codec_(stages_),
        line_(2 * stages_),
        flying_(2 * stages_),
        done_(stages_),
        inputs_(stages_),
        gradients_(stages_) {
    inputs_[0] = gradients_[stages_ - 1] = pipeline.micro_batches;
  }

  ActionEnds Run() {
    for (int i = 0; i < stages_; ++i) Compute(i);
    const auto works = [this](const StageProgress& done) {
      return done.weight_gradients < p_.micro_batches;
    };
    while (std::any_of(done_.begin(), done_.end(), works)) {
      while (OneEnds()) {
      }
      ++now_;
    }
    return ends_;
  }

 private:
  enum { kForward, kInputGradient, kWeightGradient };
  enum { kEncodeDown, kEncodeUp, kDecodeDown, kDecodeUp };

  // The first of what ends now: compute lanes, codec lanes, sends, delays, each in order.
  bool OneEnds() {
    for (int i = 0; i < stages_; ++i) {
      if (compute_[i].job.has_value() && compute_[i].until == now_) {
        ComputeEnds(i);
        return true;
      }
    }
    for (int i = 0; i < stages_; ++i) {
      if (codec_[i].job.has_value() && codec_[i].until == now_) {
        const int job = *codec_[i].job;
        codec_[i].job.reset();
        Coded(i, job);
        Codec(i);
        return true;
      }
    }
    for (int way = 0; way < 2 * (stages_ - 1); ++way) {
      Server& line = line_[LineOf(way)];
      if (line.job == way && line.until == now_) {
        line.job.reset();
        const int64_t delay = Way(way).delay_ns;
        if (delay == 0) {
          Arrived(way);
        } else {
          flying_[way].push_back(now_ + delay);
        }
        Send(way);
        return true;
      }
    }
    for (int way = 0; way < 2 * (stages_ - 1); ++way) {
      if (!flying_[way].empty() && flying_[way].front() == now_) {
        flying_[way].pop_front();
        Arrived(way);
        return true;
      }
    }
    return false;
  }

  void Compute(int i) {
    if (compute_[i].job.has_value()) return;
    const Action action = NextAction(OrderOf(p_, i), p_.micro_batches, done_[i]);
    if (action == Action::kForward && inputs_[i] > done_[i].forwards) {
      compute_[i].job = kForward;
      compute_[i].until = now_ + p_.stages[i].forward_ns;
    } else if (action == Action::kInputGradient && gradients_[i] > done_[i].input_gradients) {
      compute_[i].job = kInputGradient;
      compute_[i].until = now_ + p_.stages[i].input_gradient_ns;
    } else if (action == Action::kWeightGradient) {
      compute_[i].job = kWeightGradient;
      compute_[i].until = now_ + p_.stages[i].weight_gradient_ns;
    }
  }

  void ComputeEnds(int i) {
    const int job = *compute_[i].job;
    compute_[i].job.reset();
    if (job == kForward) {
      ends_.forward[i][done_[i].forwards++] = now_;
      if (i + 1 < stages_) Code(i, kEncodeDown);
    } else if (job == kInputGradient) {
      ends_.input_gradient[i][done_[i].input_gradients++] = now_;
      if (i > 0) Code(i, kEncodeUp);
    } else {
      ends_.weight_gradient[i][done_[i].weight_gradients++] = now_;
    }
    Compute(i);
  }

  int64_t CodecTime(int i, int job) const {
    switch (job) {
      case kEncodeDown:
        return p_.links[i].down.encode_ns;
      case kEncodeUp:
        return p_.links[i - 1].up.encode_ns;
      case kDecodeDown:
        return p_.links[i - 1].down.decode_ns;
      default:
        return p_.links[i].up.decode_ns;
    }
  }
  void Code(int i, int job) {
    if (CodecTime(i, job) == 0) return Coded(i, job);
    codec_[i].waiting.push_back(job);
    Codec(i);
  }
  void Codec(int i) {
    if (codec_[i].job.has_value() || codec_[i].waiting.empty()) return;
    codec_[i].job = codec_[i].waiting.front();
    codec_[i].waiting.pop_front();
    codec_[i].until = now_ + CodecTime(i, *codec_[i].job);
  }
  void Coded(int i, int job) {
    if (job == kEncodeDown || job == kEncodeUp) {
      const int way = job == kEncodeDown ? 2 * i : 2 * (i - 1) + 1;
      line_[LineOf(way)].waiting.push_back(way);
      return Send(way);
    }
    ++(job == kDecodeDown ? inputs_ : gradients_)[i];
    Compute(i);
  }
  // The first way of the same medium.
  int LineOf(int way) const {
    int line = way;
    for (int other = way - 1; other >= 0 && Way(way).medium >= 0; --other) {
      if (Way(other).medium == Way(way).medium) line = other;
    }
    return line;
  }
  const WayTimes& Way(int way) const {
    return way % 2 == 0 ? p_.links[way / 2].down : p_.links[way / 2].up;
  }
  void Send(int way) {
    Server& line = line_[LineOf(way)];
    if (line.job.has_value() || line.waiting.empty()) return;
    line.job = line.waiting.front();
    line.waiting.pop_front();
    line.until = now_ + Way(*line.job).send_ns;
  }
  void Arrived(int way) {
    Code(way % 2 == 0 ? way / 2 + 1 : way / 2, way % 2 == 0 ? kDecodeDown : kDecodeUp);
  }

  const SimulatedPipeline& p_;
  const int stages_;
  ActionEnds ends_;
  std::vector<Server> compute_;
  std::vector<Server> codec_;
  std::vector<Server> line_;
  std::vector<std::deque<int64_t>> flying_;
  std::vector<StageProgress> done_;
  std::vector<int64_t> inputs_;
  std::vector<int64_t> gradients_;
  int64_t now_ = 0;
};

}  // namespace

ActionEnds EndsByTicks(const SimulatedPipeline& pipeline) { return Ticker(pipeline).Run(); }

ActionEnds EndsBySimulation(const SimulatedPipeline& pipeline) {
  ActionEnds ends = Unknown(pipeline);
  const auto note = [&](int stage, Action action, int64_t sequence, int64_t end_ns) {
    std::vector<std::vector<int64_t>>& of = action == Action::kForward ? ends.forward
                                            : action == Action::kInputGradient
                                                ? ends.input_gradient
                                                : ends.weight_gradient;
    of[stage][sequence] = end_ns;
  };
  const absl::StatusOr<SimulatedRun> run = Simulate(pipeline, note);
  EXPECT_TRUE(run.ok()) << run.status();
  return ends;
}

}  // namespace runnel
