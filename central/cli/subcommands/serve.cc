// serve: the waiting room of devices, before runs and between them.

#include <memory>
#include <string>

#include "central/cli/subcommands/subcommand.h"

namespace runnel {
namespace {

constexpr char kServeExamples[] = R"(
Devices join once and stay: `train --workers N` takes them, and they are back here when it is over.

Examples:
  take devices of this network (after `runnel-central init`)
    runnel-central serve --listen 192.168.1.10:7000
  who is here, from another terminal
    runnel-central devices
  train with three of them
    runnel-central train --model lenet --dataset mnist --data-dir ~/data/mnist --workers 3)";

}  // namespace

Subcommand AddServe(const Command& program) {
  const Command app = program.AddCommand(
      "serve", "Take devices in and keep them ready for runs, until it is ended");
  const auto listen = std::make_shared<std::string>("127.0.0.1:7000");
  app.Add("--listen", *listen,
          "HOST:PORT where workers dial in; beyond loopback after `runnel-central init`, else only "
          "with --insecure-network")
      .ShowDefault();
  app.Footer(kServeExamples);
  return {app, [listen](const CommandContext& context) { return context.serve(*listen); }};
}

}  // namespace runnel
