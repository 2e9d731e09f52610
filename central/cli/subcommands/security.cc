// init, token and revoke: who may take part.

#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "central/cli/subcommands/subcommand.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/authority.h"

namespace runnel {
namespace {

constexpr char kInitExamples[] = R"(
Examples:
  once, before the first device joins
    runnel-central init
    runnel-central token --name pi-1
  where it lies elsewhere: the same flag with every command
    runnel-central --home /srv/runnel init)";

constexpr char kRevokeExamples[] = R"(
Examples:
  a device was lost or sold
    runnel-central revoke pi-2
  from another host, with a copy of HOME/operator
    runnel-central revoke pi-2 --central 192.168.1.10:7000 --home ~/runnel-operator)";

constexpr char kTokenExamples[] = R"(
Examples:
  a Pi joins by one token, which is good for an hour
    echo $(runnel-central token --name pi-1)@192.168.1.10:7001 | \
        ssh pi@192.168.1.11 ./runnel-worker --join -
  a device whose key was lost joins again under its name
    runnel-central token --name pi-1)";

// "90s", "30m", "1h", "7d".
absl::StatusOr<int64_t> ParseLifetime(const std::string& text) {
  constexpr struct {
    char unit;
    int64_t seconds;
  } kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  constexpr int64_t kMostSeconds = int64_t{30} * 86400;
  for (const auto& row : kUnits) {
    int64_t count = 0;
    if (text.empty() || text.back() != row.unit) continue;
    if (!absl::SimpleAtoi(absl::string_view(text).substr(0, text.size() - 1), &count)) break;
    if (count < 1 || count > kMostSeconds / row.seconds) break;
    return count * row.seconds;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--expires ", text, ": is not a time up to 30 days, such as 30m, 1h or 7d"));
}

absl::StatusOr<std::unique_ptr<Authority>> OpenHome(const std::string& home) {
  if (home.empty()) return absl::InvalidArgumentError("--home: give a folder");
  return Authority::Open(home, SystemWallClock());
}

absl::Status Init(const std::string& home, const CommandContext& context) {
  if (home.empty()) return absl::InvalidArgumentError("--home: give a folder");
  RUNNEL_RETURN_IF_ERROR(Authority::Create(home, SystemWallClock()).status());
  context.print(
      absl::StrCat("made a certificate authority in ", home, ": keep this folder secret"));
  context.print("from now on every stream is encrypted, and only devices with a token join:");
  context.print("  runnel-central token --name NAME");
  return absl::OkStatus();
}

}  // namespace

Subcommand AddInit(const Command& program) {
  const Command app = program.AddCommand(
      "init", "Make a certificate authority: streams are encrypted from then on");
  app.Footer(kInitExamples);
  return {app, [](const CommandContext& context) { return Init(context.home, context); }};
}

Subcommand AddToken(const Command& program) {
  struct Flags {
    std::string name;
    std::string expires = "1h";
  };
  const Command app =
      program.AddCommand("token", "Print a token with which one device may join, once");
  const auto flags = std::make_shared<Flags>();
  app.Add("--name", flags->name,
          "name of the device; an older device of that name is replaced (default: the device "
          "chooses one)");
  app.Add("--expires", flags->expires, "life of the token: 30m, 1h, 7d").ShowDefault();
  app.Footer(kTokenExamples);
  return {app, [flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const int64_t lifetime_s, ParseLifetime(flags->expires));
            RUNNEL_ASSIGN_OR_RETURN(const auto authority, OpenHome(context.home));
            RUNNEL_ASSIGN_OR_RETURN(const JoinToken token,
                                    authority->NewToken(flags->name, lifetime_s));
            context.print(token.ToString());
            return absl::OkStatus();
          }};
}

Subcommand AddRevoke(const Command& program) {
  const Command app =
      program.AddCommand("revoke", "Take a device's certificates away, also while it trains");
  const auto name = std::make_shared<std::string>();
  const auto central = std::make_shared<std::string>();
  app.Add("name", *name, "name of the device").Required();
  app.Add("--central", *central,
          "control address of a central on another host; the request uses the certificate in "
          "HOME/operator (default: the authority is in HOME)");
  app.Footer(kRevokeExamples);
  return {app, [name, central](const CommandContext& context) -> absl::Status {
            if (!central->empty()) {
              RUNNEL_RETURN_IF_ERROR(context.revoke_at(*central, *name));
              context.print(absl::StrCat("revoked ", *name, " at ", *central));
              return absl::OkStatus();
            }
            RUNNEL_ASSIGN_OR_RETURN(const auto authority, OpenHome(context.home));
            RUNNEL_RETURN_IF_ERROR(authority->Revoke(*name));
            context.print(absl::StrCat("revoked ", *name));
            return absl::OkStatus();
          }};
}

}  // namespace runnel
