#pragma once

// The feed of a run: a Feeder for the plan that holds, and what all feeders of the run share.

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "central/run/feed/feeder.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/tensor/payload.h"
#include "proto/transport/relay/relay_transport.h"

namespace runnel {

// Call all methods on the loop's thread, or when it does not run.
class Feed {
 public:
  explicit Feed(EventLoop* loop) : loop_(loop) {}

  // Once, before the first Connect. options: with data sets that outlive the feed, without a
  // transport; routes: how stages are dialled.
  void Open(FeederOptions options, RelayOptions routes) {
    options_ = std::move(options);
    options_.transport = &routes_.emplace(std::move(routes));
  }
  // Feeds the stages of a plan, in place of those of the plan before. on_failed: Feeder's.
  void Connect(const ConnectFeed& to, const Batching& batching,
               std::function<void(const absl::Status&)> on_failed) {
    feeder_ = std::make_unique<Feeder>(loop_, &pool_, options_, batching, std::move(on_failed));
    feeder_->Connect(to.generation, to.first, to.last, to.first_sequence, to.window);
  }
  // Lets go of the links.
  void Stop() { feeder_.reset(); }
  // Null: no plan is fed.
  Feeder* feeder() { return feeder_.get(); }

 private:
  EventLoop* const loop_;
  BufferPool pool_;
  FeederOptions options_;
  std::optional<RelayTransport> routes_;
  std::unique_ptr<Feeder> feeder_;
};

}  // namespace runnel
