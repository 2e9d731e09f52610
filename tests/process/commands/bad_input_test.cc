// Wrong input: one clear line, exit code 2, nothing half-written.

#include <arpa/inet.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "central/settings/run_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/security/join_secret.h"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::bad_input_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void ExpectRefused(const Words& words, const std::string& text, int lines = 1) {
  Words command = words;
  command.insert(command.begin(), "runnel-central");
  Process central(command);
  EXPECT_EQ(central.Wait(60), 2) << testing::PrintToString(words) << "\n" << central.err();
  const std::string err = central.err();
  EXPECT_THAT(err, HasSubstr(text)) << testing::PrintToString(words);
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), lines) << err;
}

TEST(BadInput, NamesAndNumbers) {
  ExpectRefused({"train", "--model", "alexnet"}, "--model alexnet: is none of lenet, har_cnn");
  ExpectRefused({"train", "--policy", "acept"}, "did you mean accept?");
  ExpectRefused({"train", "--dataset", "imagenet"}, "imagenet");
  ExpectRefused({"train", "--codec-forward", "mbq:9"}, "mbq");
  ExpectRefused({"train", "--codec-backward", "zip"}, "zip");
  ExpectRefused({"train", "--codec-forward", "0:mbq:2,0:mbq:3"}, "--codec-forward");
  ExpectRefused({"train", "--codec-backward", "uniform:4"}, "learns from the gradients");
  ExpectRefused({"train", "--codec-forward", "hadamard_ef:2"}, "it is for --codec-backward; ");
  ExpectRefused({"train", "--recipe", "niti", "--codec-forward", "mx:fp8"},
                "--codec-forward mx:fp8: codec mx:fp8 is for floating-point recipes");
  ExpectRefused({"train", "--model", "mlp", "--batch-size", "2", "--codec-backward", "lowrank:4"},
                "--codec-backward lowrank:4: codec lowrank:4 is beyond every boundary of mlp");
  ExpectRefused({"train", "--codec-backward", "aqsgd:2"}, "it is for --codec-forward; ");
  ExpectRefused({"train", "--model", "har_cnn", "--dataset", "synthetic_har", "--augment", "shift",
                 "--codec-forward", "aqsgd:2"},
                "--codec-forward aqsgd:2: sends how a sample differs from the epoch before, and "
                "--augment shift makes another one of it: add --augment off");
  ExpectRefused({"train", "--codec-forward", "lowrank:65"}, "lowrank:1..64");
  ExpectRefused({"train", "--codec-forward", "lowrank:4", "--bits", "4/8"}, "no number of bits");
  ExpectRefused({"train", "--bits", "2"}, "--bits 2: ");
  ExpectRefused({"train", "--learning-budget", "-1"}, "--learning-budget -1: must be at least 0");
  ExpectRefused({"train", "--bits", "2/3"}, "--bits 2/3: ");
  ExpectRefused({"train", "--policy", "magic"}, "magic");
  ExpectRefused({"train", "--schedule", "magic"}, "magic");
  ExpectRefused({"train", "--recipe", "fp7"}, "fp7");
  ExpectRefused({"train", "--optimizer", "adma"},
                "--optimizer adma: optimizer 'adma' is not known; there is sgd");
  ExpectRefused({"train", "--rate", "linear"},
                "--rate linear: rate 'linear' is not known; there is milestones, constant");
  ExpectRefused({"train", "--milestones", "50%,3"},
                "--milestones 50%,3: are epochs and shares: give all as epochs or all with %");
  ExpectRefused({"train", "--milestones", "75%,50%"},
                "--milestones 75%,50%: must be in ascending order");
  ExpectRefused({"train", "--milestones", "50%", "--rate", "cosine"},
                "--milestones 50%: --rate cosine does not look at milestones; leave one out");
  ExpectRefused({"train", "--optimizer", "sgd:1"}, "--optimizer sgd:1: ");
  ExpectRefused({"train", "--backend", "tpu"}, "tpu", 2);  // the local worker says so too
  ExpectRefused({"dance"}, "dance");
  ExpectRefused({"train", "--local-workers", "7", "--quick"}, "7 stages");
  ExpectRefused({"train", "--batch-size", "0"}, "--batch-size");
  ExpectRefused({"train", "--batch-size", "-1"}, "--batch-size");
  ExpectRefused({"train", "--batch-size", "-5"}, "--batch-size");
  ExpectRefused({"train", "--lr", "nan"}, "--lr");
  ExpectRefused({"train", "--caps", "1,2,3", "--local-workers", "3"}, "--caps");
  ExpectRefused({"train", "--caps", "2,1", "--local-workers", "3"}, "--caps");
  ExpectRefused({"train", "--micro-batches", "0"}, "--micro-batches");
  ExpectRefused({"train", "--micro-batches", "4", "--aggregate-every", "9"},
                "--aggregate-every 9: with --micro-batches 4");
  ExpectRefused({"train", "--local-workers", "0", "--workers", "2"}, "--local-workers");
}

TEST(BadInput, ATypoIsAnsweredWithTheNearestName) {
  ExpectRefused({"train", "--batch-sise", "8"},
                "--batch-sise is no flag of train; did you mean --batch-size?");
  ExpectRefused({"train", "--codec_forward=mbq:2"}, "did you mean --codec-forward?");
  ExpectRefused({"train", "--insecure-netwrok"}, "did you mean --insecure-network?");
  ExpectRefused({"train", "--frobnicate"},
                "--frobnicate is no flag of train; see runnel-central train --help");
  ExpectRefused({"train", "fast"}, "'fast'");
  ExpectRefused({"train", "--lr"}, "--lr");
  ExpectRefused({"token", "--expires"}, "see runnel-central token --help");
  ExpectRefused({"trian"}, "did you mean train?");
}

// Also where it stands in place of a flag that the command needs.
TEST(BadInput, ATypoInARequiredFlagIsNamed) {
  ExpectRefused({"resume", "--checkpont-dir", "c"},
                "--checkpont-dir is no flag of resume; did you mean --checkpoint-dir?");
  ExpectRefused({"resume"}, "--checkpoint-dir is required; see runnel-central resume --help");
}

TEST(BadInput, CommandsOfTheLabSayWhereTheyWent) {
  for (const std::string name : {"simulate", "profile", "predictor-report", "codecs"}) {
    ExpectRefused({name, "--summary", "f.json"},
                  absl::StrCat("runnel-central: ", name,
                               " is a command of runnel-lab now: runnel-lab ", name, " --help\n"));
    Process help({"runnel-lab", name, "--help"});
    EXPECT_EQ(help.Wait(30), 0) << help.err();
  }
  Process lab({"runnel-lab", "train"});
  EXPECT_EQ(lab.Wait(30), 2);
  EXPECT_THAT(lab.err(), HasSubstr("there are simulate, profile, predictor-report, codecs"));
}

TEST(BadInput, TheLabRefusesWhatItCannotSimulate) {
  const std::pair<Words, const char*> kCases[] = {
      {{"accept-1", "--policies", "ftpipehd,accept,runnel"},
       "--policies accept: plans from predicted times, and the hosts of accept-1 have no "
       "device_profile to predict from; take measured_compression, or one of four-backends, "
       "mixed-1, mixed-2, mixed-3\n"},
      {{"mixed-1", "three-pis", "--policies", "predictor"}, "the hosts of three-pis have no"},
      {{"three-pis", "--learning-budget", "-1"},
       "runnel-lab: --learning-budget: must be a number of at least 0, not -1; see runnel-lab "
       "simulate --help\n"},
      {{"three-pis", "--learning-budget", "inf"}, "must be a number of at least 0, not inf"},
      {{"three-pis", "--mbps", "1e9"}, "--mbps: must be from 0.001 to 1e+06, not 1e9"},
      {{"three-pis", "--max-cap", "0"}, "--max-cap: must be from 1 to 1024, not 0"},
  };
  for (const auto& [words, message] : kCases) {
    Process lab(With({"runnel-lab", "simulate"}, words));
    EXPECT_EQ(lab.Wait(60), 2) << lab.out();
    EXPECT_THAT(lab.err(), HasSubstr(message));
    EXPECT_EQ(lab.out(), "");
  }
}

TEST(BadInput, AFlagThatIsGoneNamesItsSuccessor) {
  ExpectRefused({"train", "--cost", "predicted"}, "--cost is gone: --predictor NAME plans from");
  ExpectRefused({"plan", "--plan-mbps=4"}, "--plan-mbps is gone: --links MBPS says the same");
  ExpectRefused({"devices", "--central", "127.0.0.1:1", "--cost", "x"},
                "--cost is no flag of devices");
  ScratchDir dir;
  std::ofstream(dir / "old") << "plan-mbps=4\n";
  ExpectRefused({"train", "--config", dir / "old"}, "--plan-mbps is gone");
  ExpectRefused({"train", "--local-workers", "2", "--links", "-1"}, "--links -1: must be above 0");
  ExpectRefused({"train", "--local-workers", "2", "--links", "nothing"},
                "--links open nothing: No such file");
}

std::string HelpOf(const Words& words) {
  Process central(words);
  EXPECT_EQ(central.Wait(30), 0) << central.err();
  const std::string out = central.out();
  for (absl::string_view line : absl::StrSplit(out, '\n')) EXPECT_LE(line.size(), 100u) << line;
  return out;
}

// Alone, or before its other name.
bool ShowsFlag(const std::string& help, absl::string_view name) {
  const std::string begin = absl::StrCat("\n  --", name);
  return absl::StrContains(help, begin + " ") || absl::StrContains(help, begin + ",");
}

TEST(Help, AllOfTrainHasEveryFlagInItsGroup) {
  const std::string out = HelpOf({"runnel-central", "train", "--help-all"});
  for (const char* title :
       {"Model and data:", "Devices:", "Links:", "Planning:", "Training:", "Against staleness",
        "Integer recipes:", "Output:", "Advanced:", "Examples:"}) {
    EXPECT_THAT(out, HasSubstr(title));
  }
  for (const RunField& field : RunFields()) {
    EXPECT_TRUE(ShowsFlag(out, field.flag.name)) << field.flag.name << "\n" << out;
  }
}

// The commands that a program's help lists.
std::vector<std::string> CommandsOf(const std::string& program) {
  const std::string help = HelpOf({program, "--help"});
  EXPECT_THAT(help, HasSubstr("Exit codes: 0 ")) << program;
  std::vector<std::string> commands;
  for (absl::string_view line : absl::StrSplit(help.substr(help.find("Subcommands:")), '\n')) {
    if (line.empty()) break;
    if (!absl::ConsumePrefix(&line, "  ") || line[0] == ' ') continue;
    commands.emplace_back(line.substr(0, line.find(' ')));
  }
  return commands;
}

TEST(Help, OfEachCommandHasAnExample) {
  for (const std::string program : {"runnel-central", "runnel-lab", "runnel-worker"}) {
    const std::vector<std::string> commands = CommandsOf(program);
    EXPECT_GE(commands.size(), 3u) << program;
    for (const std::string& command : commands) {
      Process help({program, command, "--help"});
      EXPECT_EQ(help.Wait(30), 0) << help.err();
      const std::string out = help.out();
      const size_t examples = out.find("Examples:");
      ASSERT_NE(examples, out.npos) << program << " " << command;
      EXPECT_THAT(out.substr(examples), ContainsRegex(absl::StrCat(program, ".* ", command)));
    }
  }
}

TEST(Help, OfTrainHasTheTwentyFlagsThatPeopleUse) {
  const std::string out = HelpOf({"runnel-central", "train", "--help"});
  int shown = 0;
  for (const RunField& field : RunFields()) shown += ShowsFlag(out, field.flag.name) ? 1 : 0;
  EXPECT_EQ(shown, 20) << out;
  EXPECT_THAT(out, AllOf(HasSubstr("--help-all"), HasSubstr("--quick"), HasSubstr("--config")));
}

TEST(BadInput, ConfigurationFiles) {
  ScratchDir dir;
  ExpectRefused({"train", "--config", dir / "none"}, dir / "none");
  ExpectRefused({"train", "--config", dir.path()}, dir.path() + ": is a folder, no file");
  std::ofstream(dir / "unknown") << "batch-size=8\nspeed=9\n";
  ExpectRefused({"train", "--config", dir / "unknown"}, "'speed' is no flag of train");
  std::ofstream(dir / "bad") << "batch-size=many\n";
  ExpectRefused({"train", "--config", dir / "bad"}, "--batch-size many: must be an integer");
  std::ofstream(dir / "typo") << "batch_size=8\n";
  ExpectRefused({"train", "--config", dir / "typo"}, "did you mean --batch-size?");
}

TEST(BadInput, IntegerRecipes) {
  ExpectRefused({"train", "--model", "har_cnn", "--recipe", "niti"},
                "layer conv1, op 0 (conv): has a bias");
  ExpectRefused({"train", "--model", "mobilenet_v2", "--recipe", "niti"},
                "op 1 (batch_norm): integers are not normalised");
  ExpectRefused({"train", "--recipe", "niti:foo"}, "niti:foo");
  ExpectRefused({"train", "--recipe", "niti", "--gradient-bits", "99"},
                "--gradient-bits 99: 99 bits: must be -8..7");
  ExpectRefused({"train", "--recipe", "niti", "--gradient-bits", "0:3,0:2"},
                "--gradient-bits 0:3,0:2: epoch 0");
  ExpectRefused({"train", "--recipe", "niti", "--gradient-bits", "many"}, "'many'");
  ExpectRefused({"train", "--recipe", "niti", "--gradient-bits", "plateau:2:0"},
                "'0' is no number of barriers");
  ExpectRefused({"train", "--recipe", "niti", "--gradient-bits", "cliff:2"},
                "rule 'cliff' is not known; rules: plateau:VALUE[:BARRIERS]");
  ExpectRefused({"train", "--gradient-bits", "2"}, "--gradient-bits 2: recipe fp32");
  ExpectRefused({"train", "--recipe", "niti", "--rescale", "sometimes"},
                "--rescale sometimes: must be dynamic, speculate");
  ExpectRefused({"train", "--recipe", "niti", "--rescale", "adaptive:9,0"}, "PERIOD in 1..65536");
  ExpectRefused({"train", "--rescale", "adaptive"},
                "--rescale adaptive: recipe fp32 has no scales");
  ExpectRefused({"train", "--backend", "hexagon"}, "--backend hexagon: it trains integers alone");
  ExpectRefused({"train", "--recipe", "niti", "--batch-split", "0"},
                "--batch-split 0: must be off, auto, N or shifted:N");
  ExpectRefused({"train", "--batch-split", "8"}, "only integer recipes split");
}

TEST(BadInput, DataFiles) {
  ScratchDir dir;
  ExpectRefused({"train", "--dataset", "mnist"}, "--data-dir");
  ExpectRefused({"train", "--dataset", "mnist", "--data-dir", dir.path()},
                "train-images-idx3-ubyte");
  // 2 images of 28x28 claimed, one byte there.
  std::ofstream(dir / "train-images-idx3-ubyte", std::ios::binary)
      << std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1c\x01", 17);
  std::ofstream(dir / "train-labels-idx1-ubyte", std::ios::binary)
      << std::string("\0\0\x08\x01\0\0\0\x02\x01\x02", 10);
  ExpectRefused({"train", "--dataset", "mnist", "--data-dir", dir.path()},
                "train-images-idx3-ubyte");
  // A label that no class has.
  std::string images(3073 * 4, '\1');
  std::ofstream(dir / "test_batch.bin", std::ios::binary) << images;
  images[3073] = '\x0b';
  std::ofstream(dir / "data_batch_1.bin", std::ios::binary) << images;
  ExpectRefused(
      {"train", "--model", "mobilenet_v2", "--dataset", "cifar10", "--data-dir", dir.path()},
      "label");
}

TEST(BadInput, CheckpointsAndJournals) {
  ScratchDir dir;
  ExpectRefused({"resume", "--checkpoint-dir", dir / "none"}, dir / "none");
  ExpectRefused({"eval", "--checkpoint-dir", dir.path()}, dir.path());
  std::ofstream(dir / "checkpoint-000000000100.runnel") << "not a check-point";
  ExpectRefused({"resume", "--checkpoint-dir", dir.path()}, "checkpoint-000000000100.runnel");
  // A folder and a journal of another run are not mixed with this one's.
  ExpectRefused({"train", "--checkpoint-dir", dir.path()}, "already");
  ExpectRefused({"replay", "--journal", dir / "nothing"}, "nothing");
  std::ofstream(dir / "journal") << "{\"record\":\"dance\"}\n";
  ExpectRefused({"replay", "--journal", dir / "journal"}, "journal:1");
}

// What cannot be written is said before the work, not after it.
TEST(BadInput, FilesToWriteAreTriedFirst) {
  const ScratchDir dir;
  const std::string no_folder = dir / "none/out";
  ExpectRefused({"replay", "--journal", dir / "none", "--summary", no_folder}, no_folder);
  ExpectRefused({"predict", "--checkpoint-dir", dir / "none", "--out", no_folder + ".csv"},
                no_folder);
}

// A disk that is full at the end of a run does not keep its result from people.
TEST(BadInput, DiskFullAtTheEnd) {
  Process central({"runnel-central", "train", "--local-workers", "0", "--quick", "--max-batches",
                   "1", "--summary", "/dev/full"});
  EXPECT_EQ(central.Wait(), 1);
  EXPECT_THAT(central.err(), HasSubstr("/dev/full: No space left on device"));
  EXPECT_THAT(central.out(), AllOf(HasSubstr("trained after 1 steps"), HasSubstr("weights "),
                                   HasSubstr("\"weights_sha256\": ")));
}

TEST(BadInput, PortInUse) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = absl::StrCat(ntohs(address.sin_port));
  ExpectRefused({"train", "--workers", "1", "--listen", "127.0.0.1:" + port}, port);
  ExpectRefused({"train", "--metrics-port", port}, port);
  close(listener);
}

TEST(BadInput, NothingListensBeyondLoopback) {
  ExpectRefused({"train", "--workers", "1", "--listen", "0.0.0.0:0"}, "--insecure-network");
  for (const Words& words : {Words{"--central", "192.0.2.1:7000"},
                             Words{"--central", "127.0.0.1:1", "--listen", "192.0.2.1:0"}}) {
    Words command = words;
    command.insert(command.begin(), "runnel-worker");
    Process worker(command);
    EXPECT_EQ(worker.Wait(30), 2);
    const std::string err = worker.err();
    EXPECT_THAT(err, AllOf(HasSubstr("192.0.2.1"), HasSubstr("--insecure-network")));
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  }
}

// With --check a worker joins nothing, so what says where and how makes no sense.
TEST(BadInput, CheckRunsNoWorker) {
  for (const Words& more :
       {Words{"--central", "127.0.0.1:1"}, Words{"--join", "t@h:1"}, Words{"--once"},
        Words{"--name", "pi"}, Words{"--backend", "cpu"}, Words{"--memory-mb", "5"}}) {
    Words command = {"runnel-worker", "--check"};
    command.insert(command.end(), more.begin(), more.end());
    Process worker(command);
    EXPECT_EQ(worker.Wait(30), 2) << more[0];
    EXPECT_THAT(worker.err(), HasSubstr(more[0] + " excludes --check"));
    EXPECT_EQ(worker.out(), "");
  }
  Process threads({"runnel-worker", "--check", "--threads", "0"});
  EXPECT_EQ(threads.Wait(30), 2);
  EXPECT_THAT(threads.err(), HasSubstr("--threads"));
}

TEST(BadInput, AWorkersFlagsAreAnsweredInALine) {
  const auto refused = [](const Words& words, const std::string& line) {
    Process worker(words);
    EXPECT_EQ(worker.Wait(60), 2);
    EXPECT_EQ(worker.err(), absl::StrCat("runnel-worker: ", line, "\n"));
  };
  refused({"runnel-worker", "--hours", "25-3"},
          "--hours: '25' is no time such as 22 or 7:30; see runnel-worker --help");
  refused({"runnel-worker", "--threads", "0"},
          "--threads: Value 0 not in range 1 to 256; see runnel-worker --help");
  refused({"runnel-worker", "program"}, "MODEL is required; see runnel-worker program --help");
  refused({"runnel-worker", "--treads", "2"},
          "--treads is no flag of runnel-worker; did you mean --threads?");
  refused({"runnel-worker", "--once", "--backend_option=x"},
          "--backend_option is no flag of runnel-worker; did you mean --backend-option?");
  refused({"runnel-worker", "--frobnicate"},
          "--frobnicate is no flag of runnel-worker; see runnel-worker --help");
}

// A worker's name reaches log lines, terminals and the names of files.
TEST(BadInput, AWorkersNameHoldsNothingStrange) {
  for (const char* name : {"../x", "a b", "-a", "a\x1b[2J"}) {
    Process worker({"runnel-worker", "--central", "127.0.0.1:1", "--name", name});
    EXPECT_EQ(worker.Wait(30), 2) << name;
    EXPECT_THAT(worker.err(), HasSubstr("--name")) << name;
  }
}

TEST(BadInput, AWorkersBackendIsOneOfThoseThatItHas) {
  for (const char* name : {"warp", "cpu:warp"}) {
    Process worker({"runnel-worker", "--central", "127.0.0.1:1", "--backend", name});
    EXPECT_EQ(worker.Wait(30), 2) << name;
    EXPECT_THAT(worker.err(), AllOf(HasSubstr("--backend: "), HasSubstr("warp"))) << name;
  }
}

TEST(BadInput, AnInsecureNetworkIsAskedForAndSaid) {
  // Peers would be told an address that leads to themselves.
  Process everywhere(
      {"runnel-worker", "--central", "127.0.0.1:1", "--listen", "0.0.0.0:0", "--insecure-network"});
  EXPECT_EQ(everywhere.Wait(30), 2);
  EXPECT_THAT(everywhere.err(), HasSubstr("--listen 0.0.0.0:0"));
  for (const char* advertised : {"phone", "192.0.2.1:0", "0.0.0.0:7002"}) {
    Process worker({"runnel-worker", "--central", "127.0.0.1:1", "--advertise", advertised});
    EXPECT_EQ(worker.Wait(), 2);
    EXPECT_THAT(worker.err(), HasSubstr(std::string("--advertise ") + advertised));
  }
  ExpectRefused({"train", "--workers", "1", "--local-workers", "2", "--listen", "0.0.0.0:0"},
                "--listen 0.0.0.0:0: other hosts dial the local workers too");
  Process central({"runnel-central", "train", "--workers", "1", "--listen", "0.0.0.0:0",
                   "--insecure-network", "--worker-timeout-s", "1"});
  EXPECT_EQ(central.Wait(60), 1) << central.err();
  EXPECT_THAT(central.err(), HasSubstr("plain text"));
  EXPECT_THAT(central.err(), ContainsRegex("after 1 s . of 2 workers"));
}

// What a killed or full write leaves in a folder of check-points.
std::vector<std::string> HalfWritten(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "lock" && name != "central.json") names.push_back(name);
  }
  return names;
}

// A full disk ends no run: barriers try again, and so does the last check-point, which no barrier
// follows.
TEST(BadInput, DiskFullWhileCheckpointing) {
  for (const char* batches : {"80", "20"}) {
    ScratchDir dir;
    const Words command = {"runnel-central",  "train", "--max-batches",    batches,
                           "--barrier-every", "10",    "--checkpoint-dir", dir / "c"};
    // No file may grow beyond 1 MB: a check-point of LeNet has 3.4.
    Process central(command, [] {
      const rlimit limit = {1 << 20, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
      signal(SIGXFSZ, SIG_DFL);
    });
    ASSERT_TRUE(central.WaitForOutput("File too large: this is the run's last check-point"))
        << central.out() << central.err();
    EXPECT_THAT(central.out() + central.err(),
                HasSubstr("the next barriers try again, for 10 minutes"));
    EXPECT_THAT(HalfWritten(dir / "c"), ::testing::IsEmpty());
    const rlimit room = {RLIM_INFINITY, RLIM_INFINITY};
    ASSERT_EQ(prlimit(central.pid(), RLIMIT_FSIZE, &room, nullptr), 0);
    EXPECT_EQ(central.Wait(), 0) << central.err();
    EXPECT_THAT(HalfWritten(dir / "c"), ::testing::Not(::testing::IsEmpty()));
  }
}

TEST(BadInput, WhoDoesNotWaitForRoomEndsTheRun) {
  ScratchDir dir;
  Process central({"runnel-central", "train", "--max-batches", "20", "--barrier-every", "10",
                   "--checkpoint-dir", dir / "c"},
                  [] {
                    const rlimit limit = {1 << 20, 1 << 20};
                    setrlimit(RLIMIT_FSIZE, &limit);
                  });
  ASSERT_TRUE(central.WaitForOutput("this is the run's last check-point")) << central.err();
  central.Signal(SIGTERM);
  EXPECT_EQ(central.Wait(60), 2) << central.err();
  EXPECT_THAT(central.err(), HasSubstr("File too large"));
}

TEST(BadInput, OrdersWithoutCentral) {
  Process status({"runnel-central", "status", "--central", "127.0.0.1:1"});
  EXPECT_EQ(status.Wait(60), 1);
  EXPECT_THAT(status.err(),
              AllOf(StartsWith("runnel-central: no central answers at 127.0.0.1:1: is that its "
                               "control address, and does a run or `runnel-central serve` go on "
                               "there? ("),
                    HasSubstr("Connection refused"), EndsWith(")\n")));
  const ScratchDir home;
  ExpectRefused({"--home", home.path(), "status", "--central", "192.0.2.1:7000"},
                "A central without certificates takes orders on its page alone (--metrics-port)");
}

TEST(BadInput, WorkerWithoutCentral) {
  Process worker({"runnel-worker", "--central", "127.0.0.1:1", "--connect-timeout-ms", "300"});
  EXPECT_EQ(worker.Wait(30), 1);
  EXPECT_THAT(worker.err(), HasSubstr("no central answers at 127.0.0.1:1"));
  Process nonsense({"runnel-worker", "--central", "nowhere"});
  EXPECT_EQ(nonsense.Wait(30), 2) << nonsense.err();
}

// A central that waits for two dialling workers, and where it listens.
class WaitingCentral {
 public:
  WaitingCentral() : central_({"runnel-central", "train", "--workers", "2"}) {
    address_ = WorkersAddress(central_);
  }
  Process& process() { return central_; }
  const std::string& address() const { return address_; }

 private:
  Process central_;
  std::string address_;
};

TEST(BadInput, AWorkerWithATakenNameIsRefused) {
  WaitingCentral central;
  ScratchDir dir;  // by what lies there, two workers are told from one that comes back
  const Words pi = {"runnel-worker", "--central", central.address(), "--name", "pi",
                    "--state-dir",   dir.path()};
  Process first(pi);
  Process second(pi);
  // Whichever came second is told; the other one waits on.
  EXPECT_TRUE(central.process().WaitForOutput("named pi already")) << central.process().err();
  const auto told = [](const Process& worker) {
    return worker.err().find("named pi already") != std::string::npos;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!told(first) && !told(second) && std::chrono::steady_clock::now() < deadline)
    usleep(10'000);
  Process& refused = told(first) ? first : second;
  EXPECT_EQ(refused.Wait(30), 2) << refused.err();
}

TEST(BadInput, AWorkerOfAnotherProtocolVersionIsRefused) {
  struct Refusal final : public WorkerControlObserver {
    void OnMessage(CentralMessage message) override {
      if (const auto* refused = std::get_if<Refused>(&message)) reason.set_value(refused->reason);
    }
    void OnClosed(const absl::Status&) override {}
    std::promise<std::string> reason;
  };
  WaitingCentral central;
  Refusal observer;
  GrpcControlOptions options;
  options.security.secrets_folder = DefaultSecretsFolder();
  const std::unique_ptr<ControlTransport> transport = MakeGrpcControl(options);
  absl::StatusOr<std::unique_ptr<WorkerControl>> control =
      transport->Connect(central.address(), 10'000, &observer);
  ASSERT_TRUE(control.ok()) << control.status();
  WorkerHello hello;
  hello.protocol_version = kProtocolVersion + 1;
  hello.name = "old";
  hello.data_address = "127.0.0.1:1";
  ASSERT_TRUE((*control)->Send(hello).ok());
  std::future<std::string> reason = observer.reason.get_future();
  ASSERT_EQ(reason.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  const std::string version = absl::StrCat("protocol version ", hello.protocol_version);
  EXPECT_THAT(reason.get(), HasSubstr(version + ", this central speaks"));
  EXPECT_TRUE(central.process().WaitForOutput(version)) << central.process().err();
}

}  // namespace
}  // namespace runnel::bad_input_test
