#include "proto/transport/relay/relay_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/crypto/sha256.h"

namespace runnel {

std::vector<RelayCallId> RelayBook::Allow(RelayPlan plan) {
  std::vector<RelayCallId> ended;
  for (const auto& [call, what] : calls_) ended.push_back(call);
  calls_.clear();
  plan_ = std::move(plan);
  return ended;
}

absl::StatusOr<RelayBook::Wanted> RelayBook::Dial(const std::string& token, const std::string& from,
                                                  const std::string& peer, std::string ticket) {
  const auto place =
      std::find_if(plan_.places.begin(), plan_.places.end(), [&token](const RelayPlace& one) {
        return !one.token.empty() && EqualSecrets(one.token, token);
      });
  if (place == plan_.places.end())
    return absl::PermissionDeniedError("relay: no stage of this plan has the token that was shown");
  if (!peer.empty() && peer != from) {
    return absl::PermissionDeniedError(
        absl::StrCat("relay: ", peer, " says to be ", absl::CEscape(from)));
  }
  const std::vector<std::string>& diallers = place->diallers;
  if (std::find(diallers.begin(), diallers.end(), from) == diallers.end()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "relay: ", absl::CEscape(from), " is no neighbour of ", place->peer, " in this plan"));
  }
  const auto at = static_cast<size_t>(place - plan_.places.begin());
  const auto of_place = std::count_if(calls_.begin(), calls_.end(),
                                      [at](const auto& entry) { return entry.second.place == at; });
  if (static_cast<size_t>(of_place) >= kMostCallsOfAPlace) {
    return absl::UnavailableError(
        absl::StrCat("relay: ", of_place, " connections to ", place->peer, " already"));
  }
  last_ = last_.next();
  calls_[last_] = {at, from, ticket};
  return Wanted{last_, place->worker, {std::move(ticket), peer}};
}

absl::StatusOr<RelayCallId> RelayBook::Answer(const std::string& ticket, const std::string& peer) {
  const auto found = std::find_if(calls_.begin(), calls_.end(), [&ticket](const auto& entry) {
    return !entry.second.ticket.empty() && EqualSecrets(entry.second.ticket, ticket);
  });
  if (found == calls_.end())
    return absl::PermissionDeniedError("relay: nobody waits for the ticket that was shown");
  const RelayPlace& place = plan_.places[found->second.place];
  if (!peer.empty() && peer != place.peer) {
    return absl::PermissionDeniedError(
        absl::StrCat("relay: ", peer, " shows a ticket that ", place.peer, " was given"));
  }
  found->second.ticket.clear();
  return found->first;
}

RelayedLink RelayBook::LinkOf(RelayCallId call) const {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return {};
  return {found->second.from, plan_.places[found->second.place].peer, 0};
}

bool RelayBook::IsThrough(RelayCallId call) const {
  const auto found = calls_.find(call);
  return found != calls_.end() && found->second.ticket.empty();
}

}  // namespace runnel
