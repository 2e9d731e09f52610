#pragma once

// Watches which links go by way of central, for people and for the record. One thread.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "central/records/stage_status.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/control/members.h"

namespace runnel {

class RelayWatch {
 public:
  // Takes the currently relayed links. Returns lines about those that were not relayed before in
  // this run.
  std::vector<std::string> Follow(const std::vector<RelayedLink>& links);
  // StageStatus::relayed, as of the last Follow.
  std::vector<StageStatus> Mark(std::vector<StageStatus> stages) const;
  // Member::relayed: by somebody, be it central itself.
  void Mark(MemberList& list) const;

 private:
  using Link = std::pair<std::string, std::string>;  // names of both ends (Connection::peer)

  std::set<Link> links_;
  std::set<Link> said_;
};

}  // namespace runnel
