#include "worker/membership/find_central.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr char kBrowse[] =
    "avahi-browse --resolve --parsable --terminate --no-db-lookup _runnel-join._tcp 2>/dev/null";
constexpr char kInstead[] = "give central's address: --join TOKEN@HOST:PORT";
constexpr size_t kMostBytes = 1 << 20;
constexpr int kNoSuchCommand = 127;

}  // namespace

// =;INTERFACE;IPv4;NAME;TYPE;DOMAIN;HOST;ADDRESS;PORT;"TEXT" "TEXT"
std::vector<std::string> ParseFoundCentrals(absl::string_view output) {
  constexpr size_t kAddress = 7, kPort = 8, kTexts = 9;
  std::vector<std::string> found;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ';');
    int port = 0;
    if (fields.size() <= kTexts || fields[0] != "=" || !absl::SimpleAtoi(fields[kPort], &port) ||
        port <= 0 || port > 65535) {
      continue;
    }
    // Central says at which of its host's addresses it listens.
    std::string host(fields[kAddress]);
    for (absl::string_view text : absl::StrSplit(fields[kTexts], ' ')) {
      text = absl::StripSuffix(absl::StripPrefix(text, "\""), "\"");
      if (absl::ConsumePrefix(&text, "address=")) host = std::string(text);
    }
    const std::string address = Address{host, port}.ToString();
    // The local part of IPv6 needs an interface, which no address here has.
    if (host.empty() || absl::StartsWith(host, "fe80") || !ParseAddress(address).ok()) continue;
    if (std::find(found.begin(), found.end(), address) == found.end()) found.push_back(address);
  }
  return found;
}

absl::StatusOr<std::vector<std::string>> FindCentrals() {
  FILE* const pipe = popen(kBrowse, "re");
  if (pipe == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("--join: no shell; ", kInstead));
  std::string output;
  char piece[4096];
  for (size_t got = 0;
       (got = fread(piece, 1, sizeof(piece), pipe)) > 0 && output.size() < kMostBytes;)
    output.append(piece, got);
  const int status = pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kNoSuchCommand) {
    return absl::FailedPreconditionError(
        absl::StrCat("--join without an address asks Avahi, and avahi-browse is not here (package "
                     "avahi-utils); ",
                     kInstead));
  }
  if (code != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--join without an address asks Avahi, which does not run here (avahi-daemon); ",
        kInstead));
  }
  std::vector<std::string> found = ParseFoundCentrals(output);
  if (!found.empty()) return found;
  return absl::NotFoundError(
      absl::StrCat("--join: no central of this network announces itself; ", kInstead));
}

}  // namespace runnel
