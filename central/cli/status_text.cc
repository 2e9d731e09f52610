#include "central/cli/status_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "central/display/progress.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

constexpr size_t kMapColumns = 60;
constexpr double kUneven = 1.5;  // a stage's share of computing beside the mean of the others
constexpr size_t kEvents = 5;

// Peers chose some of these texts: as they are they may not reach a terminal. Quotes may.
std::string Shown(const std::string& text) {
  return absl::StrReplaceAll(absl::Utf8SafeCEscape(text), {{"\\'", "'"}, {"\\\"", "\""}});
}
std::string Text(const Json& json, const char* key) {
  return Shown(json.value(key, std::string()));
}

std::string HeadText(const Json& state) {
  std::string text =
      absl::StrCat(Text(state, "phase"), " ", Text(state, "model"), " on ", Text(state, "dataset"),
                   ": step ", state.value("step", 0), " of ", state.value("steps", 0), ", epoch ",
                   state.value("epoch", 0), " of ", state.value("epochs", 0));
  if (const double speed = state.value("samples_per_s", 0.0); speed > 0)
    absl::StrAppendFormat(&text, ", %.0f samples/s", speed);
  if (state.contains("train_loss"))
    absl::StrAppendFormat(&text, ", loss %.4f", state.value("train_loss", 0.0));
  if (state.contains("accuracy"))
    absl::StrAppendFormat(&text, ", accuracy %.2f %%", 100 * state.value("accuracy", 0.0));
  if (state.contains("eta_s"))
    absl::StrAppend(&text, ", ", FormatDuration(state.value("eta_s", 0.0)), " left");
  if (state.contains("doing")) {
    absl::StrAppendFormat(&text, "\n%s: %.0f %%", Text(state, "doing"),
                          100 * state.value("done_share", 0.0));
  }
  return text;
}

std::string WaitingText(const Json& state) {
  if (state.value("phase", "") != "waiting") return "";
  const Json& join = state.at("join");
  const int wanted = join.value("wanted", 0), here = join.value("here", 0);
  std::string text = absl::StrCat("\n", here, " of ", wanted, " workers are here; to join:");
  for (const Json& command : join.at("commands"))
    absl::StrAppend(&text, "\n  ", Shown(command.get<std::string>()));
  return text;
}

// '#': a layer that the worker has, '.': one that it has not. Of more than kMapColumns layers
// several share a column.
std::string MapOf(size_t layers, const Json* stage) {
  const size_t columns = std::min(layers, kMapColumns);
  std::string map(columns, '.');
  if (stage == nullptr) return map;
  const size_t first = stage->value("first_layer", size_t{0});
  const size_t last = stage->value("last_layer", size_t{0});
  for (size_t i = 0; i < columns; ++i) {
    const size_t begin = i * layers / columns, end = (i + 1) * layers / columns;
    if (first < end && begin <= last) map[i] = '#';
  }
  return map;
}

std::string WorkersText(const Json& state) {
  const size_t layers = state.at("layers").size();
  size_t width = 6;
  for (const Json& worker : state.at("workers"))
    width = std::max(width, Text(worker, "name").size());
  const auto name_width = static_cast<int>(width);
  const auto map_width = static_cast<int>(std::max<size_t>(6, std::min(layers, kMapColumns)));
  std::string text =
      absl::StrFormat("\n\n%-*s  %-*s  state", name_width, "worker", map_width, "layers");
  for (const Json& worker : state.at("workers")) {
    const Json* stage = nullptr;
    for (const Json& one : state.at("stages")) {
      if (one.value("device", "") == worker.value("name", "")) stage = &one;
    }
    absl::StrAppendFormat(&text, "\n%-*s  %-*s  ", name_width, Text(worker, "name"), map_width,
                          MapOf(layers, stage));
    if (!worker.value("here", false)) {
      absl::StrAppend(&text, "lost");
      continue;
    }
    absl::StrAppendFormat(&text, "%s, heard %.1f s ago", Text(worker, "state"),
                          worker.value("heard_s_ago", 0.0));
    if (stage != nullptr)
      absl::StrAppendFormat(&text, ", computes %.0f %%", 100 * stage->value("busy_share", 0.0));
  }
  return text;
}

std::string RateText(const Json& link, const std::string& key) {
  const double bytes = link.value(key, 0.0);
  return bytes > 0 ? absl::StrFormat("%.3g Mbit/s", bytes * 8e-6) : "?";
}

std::string LinksText(const Json& links) {
  std::string text;
  for (const Json& link : links) {
    for (const std::string direction : {"forward", "backward"}) {
      const bool forward = direction == "forward";
      const double measured =
          link.value(absl::StrCat("bandwidth_", direction, "_bytes_per_s"), 0.0);
      const std::string planned = absl::StrCat("expected_", direction, "_bytes_per_s");
      const double expected = link.value(planned, 0.0);
      absl::StrAppend(&text, "\n", Text(link, forward ? "from" : "to"), " -> ",
                      Text(link, forward ? "to" : "from"), ": ",
                      RateText(link, absl::StrCat("bandwidth_", direction, "_bytes_per_s")),
                      " measured, ", RateText(link, planned), " planned with, codec ",
                      Text(link, forward ? "codec_forward" : "codec_backward"));
      if (measured > 0 && measured < expected / 2) absl::StrAppend(&text, "; SLOW");
      if (link.value("relayed", false)) absl::StrAppend(&text, "; by way of central");
    }
  }
  return text.empty() ? text : absl::StrCat("\n", text);
}

std::string EventsText(const Json& events) {
  std::string text;
  const size_t count = events.size();
  for (size_t i = count > kEvents ? count - kEvents : 0; i < count; ++i) {
    const Json& event = events[i];
    absl::StrAppend(&text, "\nstep ", event.value("step", 0), ": ", Text(event, "what"));
    if (event.contains("why")) absl::StrAppend(&text, ": ", Text(event, "why"));
    if (event.contains("remedy")) absl::StrAppend(&text, "\n    ", Text(event, "remedy"));
  }
  return text.empty() ? text : absl::StrCat("\n", text);
}

std::string StatusOf(const Json& state) {
  std::string plan;
  if (!state.at("plans").empty()) {
    const Json& now = state.at("plans")[0];
    plan = absl::StrCat("\nplan ", now.value("generation", 0), " from step ",
                        now.value("from_step", 0), " on");
    if (now.contains("why")) absl::StrAppend(&plan, ": ", Text(now, "why"));
  }
  return absl::StrCat(HeadText(state), WaitingText(state), plan, WorkersText(state),
                      LinksText(state.at("links")), EventsText(state.at("events")));
}

std::string PartText(const char* name, double ms, double all_ms, const std::string& what) {
  return absl::StrFormat("\n  %-10s  %9.3f ms  %3.0f %%  %s", name, ms, 100 * ms / all_ms, what);
}

std::string HelpsText(const Json& helps, double all_ms) {
  if (helps.empty())
    return "\nnothing stands out: no device, link, cut or setting would bring 10 %";
  std::string text = "\nwhat would help:";
  for (const Json& help : helps) {
    const double ms = help.at("ms").get<double>();
    absl::StrAppendFormat(&text, "\n  %s: %.3f ms, %+.0f %% samples/s", Text(help, "what"), ms,
                          100 * (all_ms / ms - 1));
  }
  return text;
}

// Of a run whose devices were not measured: what its stages do with their time.
std::string SharesText(const Json& state) {
  std::string text;
  double all = 0, most = 0;
  std::string busiest;
  const Json& stages = state.at("stages");
  for (const Json& stage : stages) {
    const double busy = stage.value("busy_share", 0.0);
    absl::StrAppendFormat(&text, "\n  %s: computes %.0f %% of the time, waits %.0f %%",
                          Text(stage, "device"), 100 * busy, 100 * stage.value("wait_share", 0.0));
    all += busy;
    if (busy <= most) continue;
    most = busy;
    busiest = Text(stage, "device");
  }
  if (all <= 0) return "";
  const double others =
      stages.size() > 1 ? (all - most) / static_cast<double>(stages.size() - 1) : most;
  if (most >= kUneven * others) {
    absl::StrAppend(&text, "\n", busiest,
                    " computes much longer than the others: other layers there would help; "
                    "--policy runnel measures the devices and cuts by that");
  } else {
    absl::StrAppend(&text,
                    "\nnothing stands out; what one change would bring is known where "
                    "devices are measured (--policy runnel)");
  }
  return absl::StrCat("the stages, whose devices were not measured:", text);
}

std::string WhyOf(const Json& state) {
  if (!state.contains("parts")) {
    const std::string shares = SharesText(state);
    return shares.empty() ? absl::StrCat(Text(state, "phase"),
                                         ": nothing is known yet; the first answer comes some "
                                         "barriers after training has begun")
                          : shares;
  }
  const Json& parts = state.at("parts");
  // Their sum is the time, evaluations included.
  const std::pair<const char*, std::string> summands[] = {
      {"computing", Text(parts, "slowest") + " computes longest"},
      {"links", "waiting for tensors"},
      {"bubble", "filling and draining"},
      {"schedule", "waiting since no more micro-batches may be under way"},
      {"evaluation", "training stands for evaluations, or shares a processor with them"},
      {"other", "what measured times and rates do not explain"}};
  const auto ms_of = [&parts](const char* name) {
    return parts.at(absl::StrCat(name, "_ms")).get<double>();
  };
  double all_ms = 0;
  for (const auto& [name, what] : summands) all_ms += ms_of(name);
  std::string text = absl::StrFormat("%.3f ms a micro-batch, %.0f samples/s:", all_ms,
                                     state.at("samples_per_s").get<double>());
  for (const auto& [name, what] : summands)
    absl::StrAppend(&text, PartText(name, ms_of(name), all_ms, what));
  absl::StrAppend(&text,
                  PartText("memory", ms_of("memory"), all_ms,
                           "of these, since layers lie where there is room for them"),
                  HelpsText(parts.at("helps"), all_ms));
  if (state.contains("slow_because")) {
    absl::StrAppend(&text, "\nnot as planned: ", Text(state, "slow_because"));
  }
  return text;
}

absl::StatusOr<std::string> Read(absl::string_view state_json,
                                 std::string (*text_of)(const Json&)) {
  RUNNEL_ASSIGN_OR_RETURN(const Json state, ParseJson(state_json));
  try {
    return text_of(state);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("central is of another version (", error.what(),
                                                   "): take the program of its version"));
  }
}

}  // namespace

absl::StatusOr<std::string> StatusText(absl::string_view state_json) {
  return Read(state_json, StatusOf);
}

absl::StatusOr<std::string> WhyText(absl::string_view state_json) {
  return Read(state_json, WhyOf);
}

}  // namespace runnel
