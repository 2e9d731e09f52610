#include "central/cli/why_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

std::string PartText(const char* name, double ms, double all_ms, const std::string& what) {
  return absl::StrFormat("\n  %-9s  %9.3f ms  %3.0f %%  %s", name, ms, 100 * ms / all_ms, what);
}

std::string HelpsText(const Json& helps, double all_ms) {
  if (helps.empty()) return "\nnothing stands out: no single device or link would bring 10 %";
  std::string text = "\nwhat would help:";
  for (const Json& help : helps) {
    const double ms = help.at("ms").get<double>();
    absl::StrAppendFormat(&text, "\n  %s: %.3f ms, %+.0f %% samples/s",
                          absl::Utf8SafeCEscape(help.at("what").get<std::string>()), ms,
                          100 * (all_ms / ms - 1));
  }
  return text;
}

std::string TextOf(const Json& state) {
  if (!state.contains("parts")) {
    return absl::StrCat(state.at("phase").get<std::string>(),
                        ": nothing is known yet; the first answer comes some barriers after "
                        "training has begun, if devices were measured (--policy)");
  }
  const Json& parts = state.at("parts");
  const double all_ms = state.at("micro_batch_ms").get<double>();
  std::string text = absl::StrFormat("%.3f ms a micro-batch, %.0f samples/s:", all_ms,
                                     state.at("samples_per_s").get<double>());
  absl::StrAppend(
      &text,
      PartText("computing", parts.at("computing_ms").get<double>(), all_ms,
               absl::Utf8SafeCEscape(parts.at("slowest").get<std::string>()) + " computes longest"),
      PartText("links", parts.at("links_ms").get<double>(), all_ms, "waiting for tensors"),
      PartText("schedule", parts.at("schedule_ms").get<double>(), all_ms,
               "filling and draining, and micro-batches that may not be under way yet"),
      PartText("other", parts.at("other_ms").get<double>(), all_ms,
               "what measured times and rates do not explain"),
      HelpsText(parts.at("helps"), all_ms));
  if (state.contains("slow_because")) {
    absl::StrAppend(&text, "\nnot as planned: ",
                    absl::Utf8SafeCEscape(state.at("slow_because").get<std::string>()));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> WhyText(absl::string_view state_json) {
  RUNNEL_ASSIGN_OR_RETURN(const Json state, ParseJson(state_json));
  try {
    return TextOf(state);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("central is of another version (", error.what(),
                                                   "): take the program of its version"));
  }
}

}  // namespace runnel
