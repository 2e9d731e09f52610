#pragma once

// Central's end of the data plane: samples to the first stage, labels to the stage with the loss,
// never more than a window ahead of what those have consumed.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "central/data/sample_payloads.h"
#include "proto/base/training/batching.h"
#include "proto/transport/link/link_shell.h"

namespace runnel {

struct FeederOptions {
  Transport* transport = nullptr;
  const Dataset* train = nullptr;
  const Dataset* test = nullptr;
  uint64_t run_seed = 1;
  Augmentation augmentation;  // augmentation of the training samples
  int64_t batch_size = 1;     // samples of a mini-batch
  int64_t eval_batch_size = 1;
};

// Call all methods on the loop's thread.
class Feeder {
 public:
  // `loop`, `pool` and the data sets outlive the feeder. on_failed: a link did not come back.
  Feeder(EventLoop* loop, BufferPool* pool, const FeederOptions& options, const Batching& batching,
         std::function<void(const absl::Status&)> on_failed);

  // Dials the two stages (one, if they are the same). Micro-batches begin at first_sequence.
  void Connect(Generation generation, const LinkTarget& first, const LinkTarget& last,
               Sequence first_sequence, int64_t window);
  // Micro-batches below `limit` may be sent.
  void FeedUntil(Sequence limit);
  // Micro-batches of the test set, in order, as evaluation sequences from `first`.
  void FeedEvaluation(Sequence first, int64_t micro_batches);
  // Each of the micro-batches from training_first twice, as dry sequences from `first`.
  void FeedDryRun(Sequence first, Sequence training_first, int64_t micro_batches);
  // Micro-batches of the last such evaluation, and those of them that the stage with the loss has
  // taken.
  int64_t evaluation_micro_batches() const { return evaluation_.limit - evaluation_first_; }
  int64_t evaluated() const;

 private:
  struct Range {
    int64_t inputs = 0;  // next to send
    int64_t labels = 0;
    int64_t limit = 0;
  };

  std::unique_ptr<LinkShell> MakeLink(const LinkTarget& target);
  LinkShell& last() { return last_ != nullptr ? *last_ : *first_; }
  void Pump();
  void PumpTraining();
  void PumpEvaluation();
  void PumpDryRun();
  // Whether the samples need no file any more; else they are asked for again a little later.
  bool IsTrainingReady(int64_t sequence);
  bool IsEvaluationReady(int64_t sequence);
  void PumpLater();
  // First sample of an evaluation's micro-batch, and how many it has.
  std::pair<int64_t, int64_t> EvaluationSamples(int64_t sequence) const;
  void SendTraining(int64_t sequence, bool labels);
  void SendEvaluation(int64_t sequence, bool labels);
  void SendDryRun(int64_t sequence, bool labels);
  void Send(LinkShell& link, FrameKind kind, int64_t sequence, int64_t samples, Payload payload);

  EventLoop* loop_;
  Transport* transport_;
  const int64_t eval_batch_size_;
  SamplePayloads payloads_;
  Batching batching_;
  std::function<void(const absl::Status&)> on_failed_;
  FrameLimits limits_;  // nothing but acknowledgements comes back
  Generation generation_;
  int64_t window_ = 1;
  Range training_;
  Range evaluation_;
  int64_t evaluation_first_ = 0;
  Range dry_run_;
  int64_t dry_run_first_ = 0;
  int64_t dry_run_training_first_ = 0;
  bool will_pump_ = false;
  std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);  // for timers behind its end
  std::unique_ptr<LinkShell> first_;
  std::unique_ptr<LinkShell> last_;  // null if one stage has both
};

}  // namespace runnel
