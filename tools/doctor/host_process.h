// The doctor's process on one host, `tutti doctor-host`, which answers questions.
//
// Questions and answers are JSON objects, one per line, on standard input and output. The process
// exits at the end of its input.
//
//   {"do":"facts","name":N,"ranks":R,"nonce":X,"environment":{...}}   {"answer":"facts", ...}
//   {"do":"clock"}                                                   {"answer":"clock","ns":T}
//   {"do":"listen","host":H,"towards":A,"port":P}  {"answer":"listen","rails":[...],"problem":T}
//   {"do":"reach","from":I,"targets":[...]}                    {"answer":"reach","reaches":[...]}
#pragma once

namespace tutti::tool {

int run_doctor_host();

}  // namespace tutti::tool
