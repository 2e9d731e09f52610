#pragma once

// Whether a peer that should be heard now and then has fallen silent, and whether its connection is
// of any use. How long it may say nothing follows from when things came from it (rhythm.h), and is
// at least kLeastNs. A state machine: no thread, no clock; one owner calls it.

#include <cstdint>
#include <optional>

#include "proto/base/rhythm.h"

namespace runnel {

class SilenceWatch {
 public:
  // Six answers to heartbeats: less would be said of each busy moment of a small device.
  static constexpr int64_t kLeastNs = 1'500'000'000;
  // Upper bound of the limit, however irregular the messages were.
  static constexpr int64_t kMostNs = 60'000'000'000;
  // After so many limits of silence the connection is taken for dead: another one is worth a try.
  static constexpr double kDeadFactor = 2.5;
  // A look that comes so late says that this process did not run: that time is nobody's silence.
  static constexpr int64_t kOwnStallNs = 1'000'000'000;

  struct Finding {
    bool is_new = false;   // a silence has begun; said once
    bool is_dead = false;  // the connection; said once
    int64_t silence_ns = 0;
    int64_t usual_ns = 0;  // between two things that come
  };

  // There is another connection: the peer has answered on it. As Heard.
  std::optional<int64_t> Connect(int64_t now_ns);
  // The connection has ended. Silence goes on.
  void Break() { stands_ = false; }
  // Something came. How long nothing had come, if that was a silence.
  std::optional<int64_t> Hear(int64_t now_ns);
  // Several times a second. allowance_ns: of silence beyond the limit, since something may be on
  // its way for so long. Nothing is found before the peer's rhythm is known.
  Finding Look(int64_t now_ns, int64_t allowance_ns = 0);

 private:
  int64_t LimitNs() const;
  std::optional<int64_t> EndSilence(int64_t now_ns);

  Rhythm rhythm_;
  int64_t heard_ns_ = 0;
  int64_t looked_ns_ = 0;  // 0: never
  bool stands_ = false;    // the connection
  bool is_silent_ = false;
};

}  // namespace runnel
