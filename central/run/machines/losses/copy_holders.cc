#include "central/run/machines/losses/copy_holders.h"

#include <optional>

#include "absl/status/statusor.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

std::string UpTo(const std::string& text, char mark, int marks) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == mark && --marks == 0) return text.substr(0, i + 1);
  }
  return std::string();
}

std::optional<int> NearestApart(absl::Span<const std::string> domains, int stage) {
  const auto stages = static_cast<int>(domains.size());
  const std::string& own = domains[static_cast<size_t>(stage)];
  if (own.empty()) return std::nullopt;
  for (int hops = 1; hops <= kMostCopyHops; ++hops) {
    for (const int other : {stage + hops, stage - hops}) {
      if (other < 0 || other >= stages) continue;
      const std::string& domain = domains[static_cast<size_t>(other)];
      if (!domain.empty() && domain != own) return other;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string FailureDomain(const WorkerHello& hello) {
  if (!hello.site.empty()) return hello.site;
  const absl::StatusOr<Address> address = ParseAddress(hello.data_address);
  if (!address.ok()) return std::string();
  const std::string& host = address->host;
  if (host.find_first_not_of("0123456789.") == std::string::npos) return UpTo(host, '.', 3);
  if (host.find_first_not_of("0123456789abcdefABCDEF:") == std::string::npos)
    return UpTo(host, ':', 4);
  return std::string();
}

std::vector<int> KeepersOf(const CopyHolders& holders, int stage) {
  std::vector<int> keepers;
  for (const int last : holders[static_cast<size_t>(stage)]) {
    const int way = last > stage ? 1 : -1;
    for (int keeper = stage + way; keeper != last + way; keeper += way) keepers.push_back(keeper);
  }
  return keepers;
}

CopyHolders NeighboursHold(int stages) {
  CopyHolders holders(static_cast<size_t>(stages));
  if (stages < 2) return holders;
  for (int i = 0; i < stages; ++i)
    holders[static_cast<size_t>(i)] = {i + 1 < stages ? i + 1 : i - 1};
  return holders;
}

CopyHolders HoldersApart(absl::Span<const std::string> domains) {
  const auto stages = static_cast<int>(domains.size());
  CopyHolders holders = NeighboursHold(stages);
  if (stages < 3) return holders;
  for (int i = 0; i < stages; ++i) {
    std::vector<int>& of_it = holders[static_cast<size_t>(i)];
    if (const std::optional<int> apart = NearestApart(domains, i); apart.has_value()) {
      of_it = {*apart};
    } else if (i + 2 < stages || i >= 2) {
      of_it = {i + 2 < stages ? i + 2 : i - 2};
    } else {
      of_it = {i - 1, i + 1};
    }
  }
  return holders;
}

}  // namespace runnel
