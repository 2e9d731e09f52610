// A run's journal.

#include "central/records/journal.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

namespace runnel::fuzz {

std::vector<std::string> Seeds() {
  RunStarted started;
  started.settings = WithDefaults(RunSettings(), TrainingDefaults(), "digits", 1);
  PlanDecided plan;
  plan.plan.generation = Generation(1);
  plan.plan.schedule = "async_1f1b";
  plan.plan.stages = {{{Seat{DeviceId(0)}}, 0, 2, 2}, {{Seat{DeviceId(1)}}, 3, 5, 1}};
  plan.plan.links.resize(1);
  plan.devices = {{"w0", "cpu"}, {"w1", "cpu"}};
  std::string text;
  for (const JournalRecord& record : std::vector<JournalRecord>{
           started, LinksKnown{{{DeviceId(0), DeviceId(1), 20, 1, false}}, {}}, plan,
           BarrierPassed{5}, EvaluationRecorded{5, 0.5, 1.5},
           WorkerLost{5, DeviceId(1), "w1", "gone"}, Recovered{5, {"w1"}}, RunStopped{5, "told to"},
           RunFinished{10, std::string(64, 'a')}}) {
    text += JournalLine(record) + "\n";
  }
  return {text};
}

void Try(absl::string_view input) {
  const MemoryFile file(input);
  const absl::StatusOr<Journal> journal = ReadJournal(file.path());
  if (!journal.ok()) {
    Require(journal.status().message().find('\n') == absl::string_view::npos,
            "errors are one line");
    return;
  }
  Require(!journal->records.empty(), "a journal has records");
  for (const JournalRecord& record : journal->records)
    Require(ParseJournalLine(JournalLine(record)).ok(), "a record that was read can be written");
}

}  // namespace runnel::fuzz
