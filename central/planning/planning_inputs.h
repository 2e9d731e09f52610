#pragma once

// All inputs of a run's plans except measurements: a value. A copy with other members is another
// question, for example `plan --what-if`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "central/planning/bandwidth_bits.h"
#include "partition/pipeline_model.h"
#include "partition/policy.h"
#include "partition/scenario.h"
#include "partition/schedule.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"
#include "proto/base/training/codecs/link_levels.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {

// Supposed rate of the link between two devices, both ways, in place of the measured one.
struct AssumedLink {
  int from = 0;  // device numbers
  int to = 0;
  LinkRate rate;
};

// Links, as long as none was measured.
struct LinkInputs {
  LinkSpeed given;              // every way; a rate of 0 is no limit
  std::string source = "none";  // origin of `given`, as PlanBandwidth::source
  std::vector<AssumedLink> assumed = {};
  // links of --links, by names of devices; before any measurement
  std::vector<ScenarioLink> ways = {};
  double frame_share = 1;  // share of a bandwidth in `ways` that frames get
};

// Codecs of the links.
struct CodecInputs {
  CodecSchedule forward;  // as LinkPlan; with follow_links: the fewest bits allowed
  CodecSchedule backward;
  // --bits bandwidth: plans name codecs that the links have time for.
  bool follow_links = false;
  BandwidthBits bits;      // how they follow; bits.epochs counts in any case
  LinkLevels levels = {};  // of codec `recipe`; none where no link has it
  int64_t steps_per_epoch = 1;
  GridBits first_bits = {};  // of `recipe` at the run's first step; 0/0: those of step 0
};

// Plans after the first one.
struct ReplanInputs {
  bool layers_move = false;
  bool codecs_change = false;
  int64_t stop_step = 0;                        // at which the run ends
  std::vector<int64_t> layer_state_bytes = {};  // parameters, momentum, statistics, by layer
  // A policy that does not look for better plans makes another one when workers come or go.
  bool follows_members = false;
};

// policy and schedule are rows of their tables.
struct PlanningInputs {
  ModelSpec model;
  const PolicyRow* policy = nullptr;
  const ScheduleRow* schedule = nullptr;
  NumberFormat format = {};        // number format of the recipe
  RecipeMemory recipe_memory;      // PlanRequest
  std::vector<int64_t> caps = {};  // by stage; empty: the schedule's
  int64_t dataset_samples = 0;     // of the data set
  int64_t batch_size = 1;          // samples of an optimizer step
  int64_t micro_batches = 1;       // micro-batches of an optimizer step
  int64_t micro_batch_size = 1;    // samples of the largest
  int64_t short_step = 0;          // PlanRequest
  int64_t barrier_every = 0;       // optimizer steps from one barrier to the next; 0: there is none
  bool recomputes = false;   // stages that would not fit make their layers again (--recompute auto)
  bool replicates = false;   // whether stages keep copies of barriers for one another
  bool looks_ahead = false;  // PipelineModel
  bool raised_looks_ahead = false;
  LinkInputs links = {};
  CodecInputs codecs = {};
  ReplanInputs replan = {};
  // Processors of central's host for its workers, over the threads that each computes with; 0: not
  // known.
  double host_processors = 0;
  bool needs_profile = false;     // whether devices are measured before the first plan
  std::string predictor = "mlp";  // row of the table of predictors
  // --predictor: the folder of profiles that are known beforehand, or an empty name; none:
  // plans are made from layers as measured.
  std::optional<std::string> predictor_profiles = {};
};

}  // namespace runnel
