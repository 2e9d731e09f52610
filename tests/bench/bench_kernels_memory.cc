#include "tests/bench/bench_kernels_memory.h"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_kernels_training.h"
#include "tests/bench/peer_torch.h"

namespace runnel::bench {
namespace {

// A line of /proc/self/status, such as "VmHWM:    1234 kB".
int64_t StatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == key && file >> kib) return kib * 1024;
  }
  return 0;
}

absl::Status ResetHighWaterMark() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError("cannot write to /proc/self/clear_refs");
}

absl::StatusOr<std::unique_ptr<Trainer>> MakeSide(const MemoryQuestion& q, const ModelSpec& model,
                                                  const Samples& samples) {
  if (q.side == Side::kOurs) return MakeTrainer(model, q.recipe, q.backend, q.threads, samples);
  return MakeTorchTrainer(model, q.side == Side::kTorchChannelsLast, samples);
}

absl::StatusOr<int64_t> Measure(const MemoryQuestion& q) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(q.model));
  const Samples samples(model, q.batch);
  {
    RUNNEL_ASSIGN_OR_RETURN(const ModelSpec small, MakeModel("lenet"));
    const Samples one(small, 1);
    RUNNEL_ASSIGN_OR_RETURN(auto trainer, MakeSide(q, small, one));
    RUNNEL_RETURN_IF_ERROR(trainer->Step());
  }
  malloc_trim(0);
  const int64_t baseline_bytes = StatusBytes("VmRSS:");
  RUNNEL_ASSIGN_OR_RETURN(auto trainer, MakeSide(q, model, samples));
  malloc_trim(0);
  RUNNEL_RETURN_IF_ERROR(ResetHighWaterMark());
  RUNNEL_RETURN_IF_ERROR(trainer->Step());
  RUNNEL_RETURN_IF_ERROR(trainer->Step());
  return StatusBytes("VmHWM:") - baseline_bytes;
}

std::vector<std::string> ArgumentsOf(const MemoryQuestion& q) {
  return {kMemoryChild,
          absl::StrCat(static_cast<int>(q.side)),
          q.model,
          q.recipe,
          q.backend,
          absl::StrCat(q.threads),
          absl::StrCat(q.batch)};
}

// Standard output of this binary, run with `arguments`.
absl::StatusOr<std::string> Ask(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe(ends) != 0) return absl::InternalError("pipe");
  std::vector<char*> argv = {const_cast<char*>("bench_kernels")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(ends[1]);
  std::string output;
  char buffer[256];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    output.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int exit_status = 0;
  if (child < 0 || waitpid(child, &exit_status, 0) != child || exit_status != 0) {
    return absl::InternalError(
        absl::StrCat("the child that measures memory ended with status ", exit_status));
  }
  return output;
}

}  // namespace

absl::StatusOr<int64_t> PeakBytes(const MemoryQuestion& question) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string answer, Ask(ArgumentsOf(question)));
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(answer, &bytes)) {
    return absl::InternalError(absl::StrCat("'", answer, "' is no number of bytes"));
  }
  return bytes;
}

int RunMemoryChild(const std::vector<std::string>& arguments) {
  MemoryQuestion q;
  int side = 0;
  if (arguments.size() != 6 || !absl::SimpleAtoi(arguments[0], &side) ||
      !absl::SimpleAtoi(arguments[4], &q.threads) || !absl::SimpleAtoi(arguments[5], &q.batch)) {
    return 2;
  }
  q.side = static_cast<Side>(side);
  q.model = arguments[1];
  q.recipe = arguments[2];
  q.backend = arguments[3];
  const absl::StatusOr<int64_t> bytes = Measure(q);
  if (!bytes.ok()) {
    std::cerr << bytes.status() << "\n";
    return 1;
  }
  std::printf("%lld\n", static_cast<long long>(*bytes));
  return 0;
}

}  // namespace runnel::bench
