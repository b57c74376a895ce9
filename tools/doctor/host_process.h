// The doctor's hand on one host: `tutti doctor-host`, which is started there and answers questions.
//
// They are JSON objects, one a line, on standard input and output; the end of the input ends it.
//
//   {"do":"facts","name":N,"ranks":R,"nonce":X,"environment":{...}}   {"answer":"facts", ...}
//   {"do":"clock"}                                                   {"answer":"clock","ns":T}
//   {"do":"listen","host":H,"towards":A,"port":P}  {"answer":"listen","rails":[...],"problem":T}
//   {"do":"reach","from":I,"targets":[...]}                    {"answer":"reach","reaches":[...]}
#pragma once

namespace tutti::tool {

int run_doctor_host();

}  // namespace tutti::tool
