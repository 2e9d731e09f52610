// A central that waits with devices between runs: they go to a run that begins, and come back.

#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::serve_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--eval-every", "-1",
                    "--batch-size", "16", "--schedule", "sync_1f1b", "--micro-batches", "2", "--max-batches", "6"};
// clang-format on

// Asks the central of this user on this host until `count` devices have this state.
json DevicesOnce(const std::string& state, size_t count) {
  for (int i = 0; i < 200; ++i) {
    Process list({"runnel-central", "devices", "--json"});
    if (list.Wait() != 0) continue;
    const json devices = json::parse(list.out(), nullptr, /*allow_exceptions=*/false);
    size_t found = 0;
    for (const json& device : devices["devices"]) found += device["state"] == state ? 1 : 0;
    if (found == count) return devices;
  }
  ADD_FAILURE() << count << " devices never had the state " << state;
  return {};
}

TEST(Serve, DevicesGoToARunAndComeBack) {
  ScratchDir dir;
  // Centrals of other tests are not found there.
  ASSERT_EQ(setenv("RUNNEL_RUNTIME_DIR", (dir / "run").c_str(), 1), 0);
  Process serve({"runnel-central", "serve", "--listen", "127.0.0.1:0"});
  const std::string address = WorkersAddress(serve);
  const auto worker = [&](const std::string& name) {
    return Words{"runnel-worker", "--central", address, "--name", name, "--state-dir", dir / name};
  };
  Process a(worker("a"));
  ASSERT_TRUE(a.WaitForOutput("waiting for a run (1 worker is here)")) << a.err();
  Process b(With(worker("b"), {"--once"}));
  ASSERT_TRUE(b.WaitForOutput("waiting for a run (2 workers are here)")) << b.err();
  EXPECT_TRUE(serve.WaitForOutput("worker b has joined: 2 are here")) << serve.err();
  const json here = DevicesOnce("waits", 2);
  EXPECT_TRUE(here["step"].is_null());

  const std::string alone = Weights(With(kRun, {"--local-workers", "1"}));
  // Where the devices are is found; another run of the same address would be refused.
  EXPECT_EQ(Weights(With(kRun, {"--workers", "2", "--listen", address})), alone);
  EXPECT_EQ(b.Wait(), 0) << "one run, and no other: " << b.err();
  EXPECT_THAT(b.err(), HasSubstr("a run begins; dialling again"));
  // Back in the room, and again with a run that is not told where to listen.
  EXPECT_TRUE(serve.WaitForOutput(absl::StrCat("open again at ", address))) << serve.err();
  DevicesOnce("waits", 1);
  EXPECT_EQ(Weights(With(kRun, {"--workers", "1"})), alone);
  DevicesOnce("waits", 1);

  Process second({"runnel-central", "serve", "--listen", address});
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_THAT(second.err(), HasSubstr(absl::StrCat("cannot listen on ", address)));
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(), 0) << serve.err();
  a.Signal(SIGTERM);
  EXPECT_EQ(a.Wait(), 0) << a.err();
  Process nobody({"runnel-central", "devices"});
  EXPECT_EQ(nobody.Wait(), 2);
}

}  // namespace
}  // namespace runnel::serve_test
