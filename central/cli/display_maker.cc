#include "central/cli/display_maker.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "central/display/run_metrics.h"
#include "central/display/state_json.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/sha256.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/link/address.h"

namespace runnel {

absl::StatusOr<RunDisplay*> DisplayMaker::Make(const RunSettings& settings) {
  local_.reset();
  remote_.reset();
  linger_s_ = settings.linger_s;
  ProgressOptions options;
  options.terminal = isatty(descriptor_) == 1;
  winsize size;
  if (options.terminal && ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.width = size.ws_col;
  const auto display = std::make_shared<RunDisplay>(options, descriptor_, clock_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    display_ = display;
  }
  RUNNEL_RETURN_IF_ERROR(ServePages(settings, display));
  return display.get();
}

absl::Status DisplayMaker::ServePages(const RunSettings& settings,
                                      const std::shared_ptr<RunDisplay>& display) {
  AdminCallbacks callbacks;
  callbacks.metrics_text = [display] { return MetricsText(display->Shown()); };
  callbacks.state_json = [display] { return StateJson(display->Shown()); };
  callbacks.ready = [display] { return display->ready(); };
  callbacks.alive = [display] { return display->alive(); };
  callbacks.orders = orders_;
  if (settings.metrics_port.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(
        local_, AdminServer::Start(static_cast<int>(*settings.metrics_port), callbacks));
    const std::string address = absl::StrCat("http://127.0.0.1:", local_->port(), "/");
    display->Line(absl::StrCat("page, /metrics and /healthz at ", address));
    display->Line(absl::StrCat("the page that also takes orders: ", address, "#", local_->token()));
  }
  if (network_.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(
        remote_, AdminServer::StartOnNetwork(network_->port, network_->network, callbacks));
    const std::string address =
        absl::StrCat("https://", Address{network_->network.host, remote_->port()}.ToString(), "/");
    display->Line(absl::StrCat("page over TLS: ", address, "#read=", network_->network.read_token));
    display->Line(
        absl::StrCat("the page that also takes orders: ", address, "#", remote_->token()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DisplayMaker::State() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (display_ == nullptr) return absl::UnavailableError("no run is under way");
  return StateJson(display_->Shown());
}

bool DisplayMaker::has_reader() const {
  return (local_ != nullptr && local_->has_reader()) ||
         (remote_ != nullptr && remote_->has_reader());
}

void DisplayMaker::Linger() {
  if (linger_s_ == 0 || !has_reader()) return;
  display_->Line(absl::StrCat("the page stays for ", linger_s_,
                              " s while a browser shows it; Ctrl-C ends it at once"));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(linger_s_);
  while (has_reader() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

absl::StatusOr<std::string> PageToken(const std::string& home) {
  constexpr size_t kTokenBytes = 16;
  constexpr int64_t kMostBytes = 256;
  const std::string path = home + "/page_token";
  absl::StatusOr<std::string> kept = ReadWholeFile(path, kMostBytes);
  if (absl::IsNotFound(kept.status())) {
    const std::string token = absl::BytesToHexString(RandomBytes(kTokenBytes));
    RUNNEL_RETURN_IF_ERROR(WritePrivateFile(path, token + "\n"));
    return token;
  }
  RUNNEL_RETURN_IF_ERROR(kept.status());
  const std::string token(absl::StripAsciiWhitespace(*kept));
  // A short secret would be guessed; it stands in a header.
  bool is_token = token.size() >= 2 * kTokenBytes;
  for (const char c : token) is_token = is_token && absl::ascii_isgraph(c);
  if (!is_token) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no token of ", 2 * kTokenBytes,
                                                   " characters; remove it, and one is made"));
  }
  return token;
}

}  // namespace runnel
