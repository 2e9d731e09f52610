#include "central/cli/command_main.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/cli/announcement.h"
#include "central/cli/current_run.h"
#include "central/cli/display_maker.h"
#include "central/cli/run_control.h"
#include "central/cli/subcommands/help.h"
#include "central/run/commands/commands.h"
#include "central/run/workers/waiting_room.h"
#include "proto/base/refusal_log.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/authority.h"
#include "proto/crypto/join_door.h"
#include "proto/process/command_line_error.h"
#include "proto/process/file_limit.h"
#include "proto/process/help_formatter.h"
#include "proto/process/signal_watch.h"
#include "proto/process/spdlog_logger.h"
#include "proto/process/standard_streams.h"
#include "proto/process/version.h"
#include "proto/transport/control/control.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/control/grpc_members.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/grpc/grpc_process.h"
#include "proto/transport/grpc/insecure_network.h"
#include "proto/transport/grpc/listen_address.h"
#include "proto/transport/grpc/security/grpc_renew.h"
#include "proto/transport/grpc/security/join_secret.h"
#include "proto/transport/grpc/security/running_central.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr char kExitCodes[] = R"(
Exit codes: 0 done, 1 the run failed, 2 wrong input, 130 stopped before the end.
What a command does, with examples: COMMAND --help)";

// Wrong input exits with 2, a failed run with 1.
int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented:
      return 2;
    default:
      return 1;
  }
}

// Admission of peers: with a certificate authority everything is encrypted, without one everything
// stays on this host.
class Protection {
 public:
  explicit Protection(RefusalLog* refusals) : refusals_(refusals) {}

  // insecure: as if there were no authority.
  absl::Status Open(const std::string& home, bool insecure) {
    if (insecure || home.empty() || access((home + "/authority.pem").c_str(), F_OK) != 0)
      return absl::OkStatus();
    RUNNEL_ASSIGN_OR_RETURN(authority_, Authority::Open(home, SystemWallClock()));
    RUNNEL_ASSIGN_OR_RETURN(Identity identity, authority_->ServerIdentity());
    identity_ = std::make_shared<IdentityHolder>(std::move(identity), authority_->server_folder());
    return absl::OkStatus();
  }

  GrpcSecurity Security() const {
    GrpcSecurity security;
    security.refusals = refusals_;
    security.secrets_folder = DefaultSecretsFolder();
    if (authority_ == nullptr) return security;
    security.identity = identity_;
    security.check_peer = [this](const CertificateInfo& peer) { return authority_->Check(peer); };
    return security;
  }

  GrpcOrders Orders() const {
    if (authority_ == nullptr) return {};
    return {[this](const CertificateInfo& worker, const std::string& request) {
              return authority_->Renew(worker, request);
            },
            [this](const std::string& name) { return authority_->Revoke(name); }};
  }

  // Where --http-listen TEXT serves.
  absl::StatusOr<PageNetwork> PageAt(const std::string& text, const std::string& home) const {
    if (authority_ == nullptr) {
      return absl::InvalidArgumentError(
          "--http-listen: needs certificates, and no --insecure-network: runnel-central init makes "
          "them, once. --metrics-port serves this host alone");
    }
    absl::StatusOr<Address> address = ToListenAddress(text, /*allow_non_loopback=*/true);
    if (!address.ok())
      return absl::Status(address.status().code(),
                          absl::StrCat("--http-listen: ", address.status().message()));
    RUNNEL_ASSIGN_OR_RETURN(std::string token, PageToken(home));
    return PageNetwork{address->port,
                       {address->host, identity_->Get(), std::move(token),
                        [this](const CertificateInfo& peer) { return authority_->Check(peer); }}};
  }

  Enrolment MakeEnrolment() {
    if (authority_ == nullptr) return {};
    return {[this](const std::string& name) { return authority_->IssueLocal(name); },
            [this](const std::string& control_address) { return OpenDoor(control_address); },
            [this] {
              announcement_.reset();
              door_.reset();
            }};
  }

 private:
  // Opens the join door one port above the control port, or at any free port if that is any free
  // one.
  absl::StatusOr<std::string> OpenDoor(const std::string& control_address) {
    RUNNEL_ASSIGN_OR_RETURN(Address address, ParseAddress(control_address));
    JoinDoor::Options options{.authority = authority_.get(),
                              .refusals = refusals_,
                              .host = address.host,
                              .port = address.port + 1,
                              .control_port = address.port};
    door_.reset();
    absl::StatusOr<std::unique_ptr<JoinDoor>> door = JoinDoor::Open(options);
    if (absl::IsAlreadyExists(door.status())) {
      options.port = 0;
      door = JoinDoor::Open(options);
    }
    RUNNEL_RETURN_IF_ERROR(door.status());
    door_ = *std::move(door);
    address.port = door_->port();
    announcement_ = Announcement::Begin(address);
    return address.ToString();
  }

  RefusalLog* const refusals_;
  std::unique_ptr<Authority> authority_;
  std::shared_ptr<IdentityHolder> identity_;
  std::unique_ptr<JoinDoor> door_;
  std::unique_ptr<Announcement> announcement_;  // of the door
};

absl::Status RevokeAsOperator(const std::string& home, RefusalLog* refusals,
                              const std::string& central, const std::string& name) {
  constexpr int64_t kTimeoutMs = 10'000;
  RUNNEL_ASSIGN_OR_RETURN(Identity identity, ReadIdentity(home + "/operator"));
  GrpcSecurity security;
  security.refusals = refusals;
  security.identity = std::make_shared<IdentityHolder>(std::move(identity), "");
  return RevokeAt(central, security, name, kTimeoutMs);
}

absl::StatusOr<std::shared_ptr<void>> ShowCentral(const std::string& control_address, bool waits) {
  return RunningCentral::Show(DefaultSecretsFolder(), control_address, waits);
}

// Where a central of this user waits for a run; empty: none does.
absl::StatusOr<std::string> WaitingAt() {
  const absl::StatusOr<ShownCentral> waiting = FindWaitingCentral(DefaultSecretsFolder());
  if (absl::IsNotFound(waiting.status())) return "";
  RUNNEL_RETURN_IF_ERROR(waiting.status());
  return waiting->listens;
}

// Asks the one that waits at this address to leave it.
absl::Status MakeWay(const std::string& address, const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(const ShownCentral waiting, FindWaitingCentral(DefaultSecretsFolder()));
  if (waiting.listens != address) return absl::NotFoundError("nobody waits there");
  RUNNEL_ASSIGN_OR_RETURN(const MemberCalls calls, context.members_at(waiting.dialled));
  return calls.give_way();
}

absl::Status Serve(const std::string& listen, ControlTransport* control,
                   const CommandContext& context, CurrentRun& current) {
  const auto show = [](const std::string& at) { return ShowCentral(at, /*waits=*/true); };
  WaitingRoom room(
      listen, {control, context.clock, context.logger, context.enrolment, show, context.print});
  current.SetRoom(&room);
  absl::Status served = room.Run();
  current.SetRoom(nullptr);
  return served;
}

// Calls with the operator's certificate if there is one, else with the secret of this user's
// centrals. central: its control address; empty: the one of this user on this host.
absl::StatusOr<MemberCalls> MembersAsOperator(const std::string& home, bool insecure,
                                              RefusalLog* refusals, std::string central) {
  if (central.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(central, FindRunningCentral(DefaultSecretsFolder()));
  }
  constexpr int64_t kTimeoutMs = 10'000;
  GrpcSecurity security;
  security.refusals = refusals;
  security.secrets_folder = DefaultSecretsFolder();
  if (!insecure && !home.empty()) {
    absl::StatusOr<Identity> identity = ReadIdentity(home + "/operator");
    if (identity.ok()) {
      security.identity = std::make_shared<IdentityHolder>(*std::move(identity), "");
    } else if (!absl::IsNotFound(identity.status())) {
      return identity.status();
    }
  }
  return MembersAt(central, security, kTimeoutMs);
}

// Everything that can stand on the command line.
class CommandLine {
 public:
  explicit CommandLine(const Program& program) : app_(program.about, program.name) {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", VersionText(program.name, kProtocolVersion));
    app_.formatter(MakeHelpFormatter());
    app_.footer(kExitCodes);
    // Flags of the program may also stand behind the command's name.
    app_.fallthrough();
    app_.add_flag("--insecure-network", insecure_network_, kInsecureNetworkHelp);
    app_.add_option("--home", home_,
                    "folder of the certificate authority; streams are encrypted where it has one "
                    "(default: $RUNNEL_HOME, else $XDG_CONFIG_HOME/runnel, else ~/.config/runnel)");
    app_.add_option("--http-listen", http_listen_,
                    "IP:PORT where a run also serves page, /metrics and /healthz, over TLS with "
                    "the certificate of central; readers show the token in HOME/page_token or an "
                    "operator's certificate");
    for (AddSubcommandFn add : program.commands) commands_.push_back(add(Command(&app_)));
  }

  CLI::App& app() { return app_; }
  bool insecure_network() const { return insecure_network_; }
  const std::string& home() const { return home_; }
  const std::string& http_listen() const { return http_listen_; }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Subcommand& command : commands_) names.push_back(command.command.app().get_name());
    return names;
  }

  bool Knows(const std::string& name) const {
    const std::vector<std::string> names = Names();
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  // Whether standard output is for a program that reads the command's summary: --summary -.
  bool writes_summary() const {
    for (const Subcommand& command : commands_) {
      if (!command.command.app().parsed()) continue;
      const CLI::Option* summary = command.command.app().get_option_no_throw("--summary");
      return summary != nullptr && summary->count() > 0 && summary->results().back() == "-";
    }
    return false;
  }

  absl::Status Run(const CommandContext& context) const {
    for (const Subcommand& command : commands_) {
      if (command.command.app().parsed()) return command.run(context);
    }
    return absl::InternalError("no command was given");
  }

 private:
  CLI::App app_;
  bool insecure_network_ = false;
  std::string http_listen_;
  std::string home_ = DefaultAuthorityFolder();
  std::vector<Subcommand> commands_;
};

// One line for a word that is no command of the program: the program that has it now, or the list
// of commands.
std::string UnknownCommand(const Program& program, const CommandLine& line, const char* word) {
  for (const absl::string_view moved : program.moved) {
    if (moved == word)
      return absl::StrCat(word, " is a command of runnel-lab now: runnel-lab ", word, " --help");
  }
  return absl::StrCat("command '", word, "' is not known; there are ",
                      absl::StrJoin(line.Names(), ", "), DidYouMean(word, line.Names()));
}

void Say(const Program& program, absl::string_view what) {
  std::fprintf(stderr, "%s: %s\n", program.name, std::string(what).c_str());
}

// The exit code, where there is nothing to run.
std::optional<int> Parse(const Program& program, CommandLine& command_line, int argc, char** argv) {
  // CLI11 would only say that a command is missing.
  if (argc > 1 && argv[1][0] != '-' && !command_line.Knows(argv[1])) {
    Say(program, UnknownCommand(program, command_line, argv[1]));
    return 2;
  }
  try {
    command_line.app().parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return command_line.app().exit(error);  // help
    Say(program, CommandLineError(command_line.app(), error, SuccessorOf));
    return 2;
  }
  return std::nullopt;
}

// Who may take part, and who sees it from other hosts.
absl::Status Protect(const CommandLine& flags, Protection& protection, DisplayMaker& displays) {
  RUNNEL_RETURN_IF_ERROR(protection.Open(flags.home(), flags.insecure_network()));
  if (flags.http_listen().empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(PageNetwork page, protection.PageAt(flags.http_listen(), flags.home()));
  displays.ServeOnNetwork(std::move(page));
  return absl::OkStatus();
}

}  // namespace

int RunProgram(const Program& program, int argc, char** argv) {
  KeepStandardStreams();
  CommandLine command_line(program);
  if (const std::optional<int> code = Parse(program, command_line, argc, argv)) return *code;
  // A file that cannot grow and a reader that is gone are errors of a write, not ends of the
  // process.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  CurrentRun stop;
  SignalWatch signals;
  signals.Begin([&stop](int caught, int signal) { stop.OnSignal(caught, signal); });
  const std::unique_ptr<Logger> logger = MakeSpdlogLogger("central");
  MonotonicClock clock;
  DisplayMaker displays(&clock);
  const bool insecure = command_line.insecure_network();
  if (insecure) logger->Log(Severity::kWarning, kInsecureNetworkWarning);
  RaiseFileLimit();
  RefusalLog refusals(logger.get(), &clock);
  LogGrpcTo(&refusals);
  Protection protection(&refusals);
  if (const absl::Status status = Protect(command_line, protection, displays); !status.ok()) {
    Say(program, status.message());
    return ExitCode(status);
  }
  const GrpcSecurity security = protection.Security();
  const std::unique_ptr<Transport> transport =
      MakeGrpcTransport({.allow_non_loopback = insecure, .security = security});
  GrpcOrders orders = protection.Orders();
  orders.members = stop.Calls([&displays] { return displays.State(); });
  displays.TakeOrders(orders.members);
  const std::unique_ptr<ControlTransport> control = MakeGrpcControl(
      {.allow_non_loopback = insecure, .security = security, .orders = std::move(orders)});
  CommandContext context;
  context.home = command_line.home();
  context.enrolment = protection.MakeEnrolment();
  context.revoke_at = [&](const std::string& central, const std::string& name) {
    return RevokeAsOperator(command_line.home(), &refusals, central, name);
  };
  context.members_at = [&](const std::string& central) {
    return MembersAsOperator(command_line.home(), insecure, &refusals, central);
  };
  RunControl run_control(control.get(), logger.get(), [&context](const std::string& address) {
    return MakeWay(address, context);
  });
  context.show = [](const std::string& address) { return ShowCentral(address, /*waits=*/false); };
  context.transport = transport.get();
  context.control = &run_control;
  context.clock = &clock;
  context.logger = logger.get();
  context.make_display = [&displays](const RunSettings& run) { return displays.Make(run); };
  context.on_trainer = [&stop](Trainer* trainer) { stop.SetTrainer(trainer); };
  std::FILE* const people = command_line.writes_summary() ? stderr : stdout;
  displays.WriteTo(fileno(people));
  context.print = [people](const std::string& text) {
    std::fprintf(people, "%s\n", text.c_str());
    std::fflush(people);
  };
  context.waiting_at = WaitingAt;
  context.serve = [&](const std::string& listen) {
    return Serve(listen, control.get(), context, stop);
  };
  const absl::Status status = command_line.Run(context);
  if (!status.ok()) Say(program, status.message());
  stop.Done(ExitCode(status));
  displays.Linger();
  return ExitCode(status);
}

}  // namespace runnel
