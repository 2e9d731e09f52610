#pragma once

// Sink of log lines. Mains adapt spdlog to it; kernels, compress and partition never log.

#include "absl/strings/string_view.h"

namespace runnel {

enum class Severity { kDebug, kInfo, kWarning, kError };

class Logger {
 public:
  virtual ~Logger() = default;
  // Logs one line, given without a line end. Any thread.
  virtual void Log(Severity severity, absl::string_view line) = 0;
};

// Drops everything.
class NullLogger final : public Logger {
 public:
  void Log(Severity, absl::string_view) override {}
};

}  // namespace runnel
