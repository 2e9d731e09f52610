#include "central/run/relay_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/crypto/certificate.h"

namespace runnel {
namespace {

std::string PeerOf(const std::string& worker) { return Subject{Role::kWorker, worker}.ToString(); }

// For people.
std::string NameOf(const std::string& peer) {
  if (peer == CentralSubject().ToString()) return "central";
  return std::string(absl::StripPrefix(peer, PeerOf("")));
}

}  // namespace

std::vector<std::string> RelayWatch::Follow(const std::vector<RelayedLink>& links) {
  std::vector<std::string> lines;
  links_.clear();
  for (const RelayedLink& link : links) {
    links_.insert({link.from, link.to});
    if (!said_.insert({link.from, link.to}).second) continue;
    lines.push_back(absl::StrCat("the link from ", NameOf(link.from), " to ", NameOf(link.to),
                                 " goes by way of central, since ", NameOf(link.from),
                                 " cannot dial ", NameOf(link.to)));
  }
  return lines;
}

std::vector<StageStatus> RelayWatch::Mark(std::vector<StageStatus> stages) const {
  for (size_t i = 1; i < stages.size(); ++i)
    stages[i].relayed = links_.count({PeerOf(stages[i - 1].worker), PeerOf(stages[i].worker)}) > 0;
  return stages;
}

void RelayWatch::Mark(MemberList& list) const {
  for (Member& member : list.members) {
    member.relayed = std::any_of(links_.begin(), links_.end(), [&member](const Link& link) {
      return link.second == PeerOf(member.name);
    });
  }
}

}  // namespace runnel
