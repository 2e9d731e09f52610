#include "central/cli/run_control.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Streams of workers that are stuck end at the transport's time-out.
constexpr std::chrono::seconds kLongestWay(5);
constexpr std::chrono::milliseconds kNextTry(10);

}  // namespace

absl::StatusOr<std::unique_ptr<CentralControl>> RunControl::Listen(
    const std::string& address, CentralControlObserver* observer) {
  absl::StatusOr<std::unique_ptr<CentralControl>> central = control_->Listen(address, observer);
  if (!absl::IsAlreadyExists(central.status()) || !make_way_(address).ok()) return central;
  logger_->Log(Severity::kInfo, absl::StrCat("the workers that wait at ", address, " come here"));
  const auto end = std::chrono::steady_clock::now() + kLongestWay;
  while (absl::IsAlreadyExists(central.status()) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kNextTry);
    central = control_->Listen(address, observer);
  }
  return central;
}

}  // namespace runnel
