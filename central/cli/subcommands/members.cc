// status, why, what-if, trace, devices, drain, pause, continue, replan and stop: questions and orders to a central that trains.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/cli/status_text.h"
#include "central/cli/subcommands/subcommand.h"
#include "proto/base/figures/span.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr char kMembersExamples[] = R"(
Examples:
  how far the run of this host's central is, and who has which layers
    runnel-central status
  what its time goes into, and what would make it faster
    runnel-central why
  whether it would be faster without a device, with one more, or over faster links
    runnel-central what-if leave:pi-2
    runnel-central what-if add:pi-4=pi-2
    runnel-central what-if mbps:100
  what each device did in two seconds, to look at in Perfetto
    runnel-central trace
  who takes part in it
    runnel-central devices
  take a device out; its layers move to others at the next barrier, and no step is trained twice
    runnel-central drain pi-2
  let it stand while the devices are needed elsewhere, then go on, by a new plan if that is faster
    runnel-central pause
    runnel-central continue
    runnel-central replan
  end it at the next barrier, with a check-point, as Ctrl-C at central does
    runnel-central stop
  from another host, with a copy of HOME/operator
    runnel-central pause --central 192.168.1.10:7000 --home ~/runnel-operator)";

// A command with the flag that says whose run it is about.
struct OrderFlags {
  std::string central;
  std::string name;
  bool json = false;
};

Command AddOrder(const Command& program, const char* name, const char* help,
                 const std::shared_ptr<OrderFlags>& flags) {
  const Command app = program.AddCommand(name, help);
  app.Add("--central", flags->central,
          "control address of the central that trains (default: the one of this user on "
          "this host)");
  app.Footer(kMembersExamples);
  return app;
}

void AddJsonFlag(const Command& app, const std::shared_ptr<OrderFlags>& flags) {
  app.AddSwitch("--json", flags->json, "for programs: one JSON object");
}

std::string DevicesJson(const MemberList& list) {
  Json devices = Json::array();
  for (const Member& member : list.members) {
    Json processors = Json::array();
    for (const ProcessorFacts& one : member.processors) {
      processors.push_back(
          {{"backend", one.backend}, {"usable", UsableText(one.state)}, {"text", ToText(one)}});
    }
    devices.push_back({{"name", member.name},
                       {"state", member.state},
                       {"address", member.address},
                       {"local", member.local},
                       {"relayed", member.relayed},
                       {"memory_bytes", member.memory_bytes},
                       {"numerics_class", member.numerics_class},
                       {"options", member.backend_options},
                       {"limits", member.limits},
                       {"processors", std::move(processors)}});
  }
  const Json step = list.step == MemberList::kNoRun ? Json() : Json(list.step);
  return DumpJson({{"step", step}, {"paused", list.paused}, {"devices", std::move(devices)}});
}

void Print(const MemberList& list, const CommandContext& context) {
  size_t name = 4, state = 5;
  for (const Member& member : list.members) {
    name = std::max(name, member.name.size());
    state = std::max(state, member.state.size());
  }
  const auto line = [&](const std::string& a, const std::string& b, const std::string& c) {
    context.print(absl::StrFormat("%-*s  %-*s  %s", static_cast<int>(name), a,
                                  static_cast<int>(state), b, c));
  };
  line("name", "state", "where");
  for (const Member& member : list.members) {
    std::string where = member.local ? "central's host" : member.address;
    if (member.relayed) absl::StrAppend(&where, ", by way of central");
    if (member.memory_bytes > 0)
      absl::StrAppendFormat(&where, ", %d MB", member.memory_bytes / 1'000'000);
    if (!member.backend_options.empty())
      absl::StrAppend(&where, ", backend options ", member.backend_options);
    if (!member.limits.empty()) absl::StrAppend(&where, ", takes part with ", member.limits);
    line(member.name, member.state, where);
    for (const ProcessorFacts& processor : member.processors) {
      context.print(absl::StrFormat("  %-8s %-11s %s", processor.backend,
                                    UsableText(processor.state), ToText(processor)));
    }
  }
  context.print(list.step == MemberList::kNoRun
                    ? "no run is under way: they wait for the next one"
                    : absl::StrCat("step ", list.step, list.paused ? ", paused" : ""));
}

absl::Status Pause(bool paused, const OrderFlags& flags, const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(flags.central));
  RUNNEL_RETURN_IF_ERROR(calls.pause(paused));
  context.print(paused ? "training stands from the next barrier on" : "training goes on");
  return absl::OkStatus();
}

// After which a command says what it waits for.
constexpr std::chrono::seconds kSilence(2);

struct TraceFlags {
  OrderFlags order;
  double seconds = 2;
  std::string out = "runnel-trace.json";
};

absl::Status Trace(const TraceFlags& flags, const CommandContext& context) {
  constexpr double kMostSeconds = static_cast<double>(kMaxTraceNs) * 1e-9;
  // Not a number neither.
  if (!(flags.seconds >= 0.001 && flags.seconds <= kMostSeconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seconds ", flags.seconds, ": a window takes 0.001 to ", kMostSeconds));
  }
  RUNNEL_RETURN_IF_ERROR(CheckCanWrite(flags.out));
  RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(flags.order.central));
  RUNNEL_RETURN_IF_ERROR(calls.trace(static_cast<int64_t>(flags.seconds * 1e3)).status());
  context.print(absl::StrFormat("tracing for %g s", flags.seconds));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(flags.seconds);
  bool says_why = true;
  std::string trace;
  while (trace.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    RUNNEL_ASSIGN_OR_RETURN(trace, calls.trace(0));
    if (says_why && trace.empty() && std::chrono::steady_clock::now() > end + kSilence) {
      context.print("waiting for devices that have not answered yet, 10 s at most");
      says_why = false;
    }
  }
  RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(flags.out, {absl::string_view(trace)}));
  context.print(absl::StrCat(flags.out, ": open it in https://ui.perfetto.dev or about:tracing"));
  return absl::OkStatus();
}

// What one of status_text.h says of a run.
Subcommand AddView(const Command& program, const char* name, const char* help,
                   absl::StatusOr<std::string> (*text_of)(absl::string_view)) {
  const auto flags = std::make_shared<OrderFlags>();
  const Command app = AddOrder(program, name, help, flags);
  AddJsonFlag(app, flags);
  return {app, [flags, text_of](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(flags->central));
            RUNNEL_ASSIGN_OR_RETURN(std::string text, calls.status());
            if (!flags->json) {
              RUNNEL_ASSIGN_OR_RETURN(text, text_of(text));
            }
            context.print(text);
            return absl::OkStatus();
          }};
}

}  // namespace

Subcommand AddStatus(const Command& program) {
  return AddView(program, "status",
                 "Show how far a run is, who has which layers, its links and what happened last",
                 StatusText);
}

Subcommand AddWhy(const Command& program) {
  return AddView(program, "why",
                 "Say what a run's time goes into, and which device or link would have to be "
                 "faster",
                 WhyText);
}

Subcommand AddDevices(const Command& program) {
  const auto flags = std::make_shared<OrderFlags>();
  const Command app = AddOrder(
      program, "devices", "List who takes part in a run, and what each one can compute on", flags);
  AddJsonFlag(app, flags);
  return {app, [flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(flags->central));
            RUNNEL_ASSIGN_OR_RETURN(const MemberList list, calls.list());
            if (flags->json) {
              context.print(DevicesJson(list));
            } else {
              Print(list, context);
            }
            return absl::OkStatus();
          }};
}

Subcommand AddWhatIf(const Command& program) {
  const auto flags = std::make_shared<OrderFlags>();
  const Command app =
      AddOrder(program, "what-if",
               "Say how fast a run would be with other devices or links, and how cut", flags);
  app.Add("assumption", flags->name, kAssumptionHelp).Required();
  return {app, [flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(flags->central));
            RUNNEL_ASSIGN_OR_RETURN(const std::string answer, calls.what_if(flags->name));
            context.print(answer);
            return absl::OkStatus();
          }};
}

Subcommand AddTrace(const Command& program) {
  const auto flags = std::make_shared<TraceFlags>();
  const Command app = AddOrder(program, "trace",
                               "Write what all devices do within a window, for Perfetto or "
                               "Chromium's about:tracing",
                               std::shared_ptr<OrderFlags>(flags, &flags->order));
  app.Add("--seconds", flags->seconds, "length of the window, up to 60");
  app.Add("--out", flags->out, "file to write");
  return {app, [flags](const CommandContext& context) { return Trace(*flags, context); }};
}

Subcommand AddDrain(const Command& program) {
  const auto flags = std::make_shared<OrderFlags>();
  const Command app =
      AddOrder(program, "drain", "Take a device out of a run; its layers move first", flags);
  app.Add("name", flags->name, "name of the device").Required();
  return {app, [flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(flags->central));
            RUNNEL_RETURN_IF_ERROR(calls.drain(flags->name));
            context.print(absl::StrCat(flags->name,
                                       " leaves when its layers have moved, at the "
                                       "next barrier"));
            return absl::OkStatus();
          }};
}

Subcommand AddPause(const Command& program) {
  const auto flags = std::make_shared<OrderFlags>();
  const Command app =
      AddOrder(program, "pause", "Let training stand from the next barrier on", flags);
  return {app, [flags](const CommandContext& context) { return Pause(true, *flags, context); }};
}

Subcommand AddContinue(const Command& program) {
  const auto flags = std::make_shared<OrderFlags>();
  const Command app = AddOrder(program, "continue", "Let a paused run go on", flags);
  return {app, [flags](const CommandContext& context) { return Pause(false, *flags, context); }};
}

Subcommand AddReplan(const Command& program) {
  const auto flags = std::make_shared<OrderFlags>();
  const Command app = AddOrder(
      program, "replan",
      "Plan anew at the next barrier; the run goes on by the new plan if that is faster", flags);
  return {app, [flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(flags->central));
            RUNNEL_RETURN_IF_ERROR(calls.replan());
            context.print("the next barrier plans anew");
            return absl::OkStatus();
          }};
}

Subcommand AddStop(const Command& program) {
  struct StopFlags {
    OrderFlags order;
    bool is_sure = false;
  };
  const auto flags = std::make_shared<StopFlags>();
  const Command app = AddOrder(program, "stop", "End a run at the next barrier",
                               std::shared_ptr<OrderFlags>(flags, &flags->order));
  app.AddSwitch("--sure", flags->is_sure,
                "also a run without --checkpoint-dir, whose weights are lost");
  return {app, [flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls,
                                    context.members_at(flags->order.central));
            RUNNEL_RETURN_IF_ERROR(calls.stop(flags->is_sure));
            context.print("training ends at the next barrier");
            return absl::OkStatus();
          }};
}

}  // namespace runnel
