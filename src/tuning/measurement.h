// One timing of a fusion scheme, or of one segment, of a BERT on some inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fusion/scheme.h"

namespace seqfuse::tuning {

// The computation that was timed. Two settings are equal if all but mask_density are.
struct Setting {
  std::string model;                         // a name for people
  int64_t hidden = 0, heads = 0, inner = 0;  // H, heads and I of fusion/graph.h
  int64_t layers = 0;
  int64_t batch = 0, seq = 0;  // sentences, and tokens of each
  std::string mask;            // as of `--mask`: "none", "sliding:32"; several joined by '+'
  double mask_density = 1;     // of the seq * seq pairs, the share that the mask allows: 0 to 1
  std::string dtype;           // "float16", ...

  bool operator==(const Setting& other) const;
};

// "bert-base (16, 2048) sliding:32 float16": batch and length in parentheses.
std::string printed(const Setting& setting);

// The machine and software of a measurement. Times of different origins are never mixed.
struct Origin {
  std::string card, driver;  // as the driver calls them; "cpu" and "" without a GPU
  std::string version;       // of seqfuse

  bool operator==(const Origin&) const = default;
};

// "NVIDIA H200, driver 580.95, seqfuse 0.1.0"
std::string printed(const Origin& origin);

enum class Status : int8_t {
  ok,
  wrong,    // its result differs from the unfused program's
  failed,   // did not compile or run
  timeout,  // ran for longer than allowed
};

const char* name_of(Status status);                           // "ok", "wrong", "failed", "timeout"
std::optional<Status> status_of_name(std::string_view name);  // none: no such status

// Exactly one of scheme and segment is set.
struct Measurement {
  Setting setting;
  std::optional<int64_t> scheme;           // fusion::program_of(...).number()
  std::optional<fusion::Segment> segment;  // operators by their indices, 0 to 14
  std::string config;                      // tile parameters as text; "": the defaults
  // ok: the median time, of all layers for a scheme, of one layer for a segment. None else.
  std::optional<double> milliseconds;
  std::optional<double> predicted;  // milliseconds that the search expected before; none: nothing
  Status status = Status::ok;
  Origin origin;
  std::string date;  // UTC: "2026-11-30T22:05:00Z"
};

// The time of the call, as Measurement::date.
std::string now_as_date();

// Throws Error that says what is wrong: sizes below 1, a density outside 0 to 1.
void check(const Setting& setting);

// The same for a measurement: its setting; neither or both of scheme and segment, a scheme that is not
// in legal form, operators out of range, a time that is not finite and above 0, a time without
// status ok or none with it, no date, no card.
void check(const Measurement& measurement);

}  // namespace seqfuse::tuning
