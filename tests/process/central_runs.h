#pragma once

// Runs of the real central to a good end, and what they say of themselves.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/process.h"

namespace runnel {

using Words = std::vector<std::string>;

// What a run wrote with --summary; a discarded value where that is no JSON.
nlohmann::json Summary(const std::string& path);

// Runs central to a good end and gives its summary.
nlohmann::json RunCentral(const Words& words);

// Of a run, without the evaluations that change nothing about them.
std::string Weights(const Words& words);

Words With(Words words, const Words& more);

// Central's end with exit code 2 and one line that says this.
void ExpectRefused(const Words& words, const std::string& message);

// Trains on central's CPU and a worker with another backend, a stage on each: gives the weights
// that one process computes with plain loops. log: what the worker says, if wanted. flags: more of
// the worker's.
void ExpectWeightsOfPlainLoops(const Words& run, const std::string& backend,
                               std::string* log = nullptr, const Words& flags = {});

// The summary of a training that loses this worker of its own once its journal has so many records
// of a kind. It ends well, and says that it recovered.
nlohmann::json SummaryBehindALoss(const Words& run, const std::string& lost,
                                  const std::string& kind, int count = 1);

// Replays a journal to a good end; what that says.
std::string Replay(const std::string& journal);
void ExpectReplays(const std::string& journal);  // with the weights of the run

// What follows `before` in the text, up to a space or the line's end.
std::string WordAfter(const std::string& text, const std::string& before);

// Where a central that waits for workers says that it listens; ends it if it does not say so.
std::string WorkersAddress(Process& central);

// A small data set in CIFAR-10's format: noise, with labels.
void WriteImages(const std::string& path, int count);

// Of this kind, in a journal.
int Records(const std::string& journal, const std::string& kind);

// Polls until there are so many of them; false after a minute, or if the run ends before.
bool WaitForRecords(const std::string& journal, const std::string& kind, int count);

}  // namespace runnel
