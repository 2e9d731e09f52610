#include "proto/process/spdlog_logger.h"

#include <cstdlib>

#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace runnel {
namespace {

// https://no-color.org
bool IsColorless() {
  const char* value = std::getenv("NO_COLOR");
  return value != nullptr && *value != '\0';
}

class SpdlogLogger final : public Logger {
 public:
  explicit SpdlogLogger(const char* name)
      : logger_(spdlog::stderr_color_mt(
            name, IsColorless() ? spdlog::color_mode::never : spdlog::color_mode::automatic)) {
    const char* level = std::getenv("RUNNEL_LOG_LEVEL");
    logger_->set_level(level == nullptr ? spdlog::level::info : spdlog::level::from_str(level));
  }
  void Log(Severity severity, absl::string_view line) override {
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    logger_->log(kLevels[static_cast<int>(severity)],
                 spdlog::string_view_t(line.data(), line.size()));
  }

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace

std::unique_ptr<Logger> MakeSpdlogLogger(const char* name) {
  return std::make_unique<SpdlogLogger>(name);
}

}  // namespace runnel
