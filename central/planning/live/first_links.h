#pragma once

// What is known of the links at the first plan: measured paths, figures that the user gave, media
// that several devices share.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/planning/measured/link_rates.h"
#include "central/planning/planner.h"
#include "central/planning/planning_inputs.h"

namespace runnel {

// One thread.
class FirstLinks {
 public:
  // Errors of --links.
  absl::Status Set(const LinkInputs& inputs, const std::vector<DeviceFacts>& devices);
  // Others have come: directions to and from them, without figures.
  void Grow(size_t devices);

  const LinkRates& rates() const { return rates_; }
  // The user's part of them.
  const LinkRates& given() const { return given_; }
  // For people; empty: no medium is shared.
  const std::string& media_text() const { return media_text_; }
  // As Planner::KnownLinks.
  std::optional<LinksKnown> Known() const;

 private:
  LinkRates rates_;
  LinkRates given_;
  std::vector<SharedMedium> media_;
  std::string media_text_;
};

// Adds directions to and from new devices, without figures.
void GrowRates(size_t devices, LinkRates& rates);

}  // namespace runnel
