"""What `rematch --help` says."""

USAGE = """rematch: trains game agents by self-play and tells the truth about how strong they are

  rematch train RECIPE [--KEY VALUE ...] [--config FILE] [--name NAME] [--max-minutes M] [--from POLICY]
                                 start a run in runs/NAME, or in NAME where that is a path (with a "/");
                                 `rematch train RECIPE --help` lists every KEY; --from: with the weights of a
                                 policy's file or of another run, at --start-iteration N where that is given
  rematch resume RUN [--max-minutes M] [--other-machine]
                                 go on exactly where it stopped
  rematch sweep RECIPE --seeds 0-9 [--grid KEY=A,B ...] [--jobs J] [--name NAME] [--config FILE]
                                 [--KEY VALUE ...] [--max-minutes M] [--json]
                                 many runs, one table: every seed of every choice of the grids' values, J at a
                                 time, in runs/NAME; the same command again goes on; exit code 1: a run failed
  rematch status RUN [--json]    where a run or a sweep stands; exit code 0 fine, 1 alarm, 3 stopped before
                                 its end
  rematch check RECIPE [--KEY VALUE ...] [--config FILE]
                                 rehearsal: every feature once, with kill and resume; names unread settings
  rematch eval RUN [--against NAMES] [--games N] [--seed S] [--greedy] [--json] [--picture FILE]
  rematch eval WORLD --players A,B [--against NAMES] [--games N] [--seed S] [--greedy] [--json]
                                 [--move-seconds S] [--world.KEY VALUE ...]
                                 matches with n and 95 % intervals, every deal from every seat; with the
                                 exact NashConv where a world can be solved, and there a picture of where
                                 the policies lose
  rematch play WORLD [--against NAME] [--KEY VALUE ...]
                                 play it yourself, in the terminal; against them where there are others;
                                 `rematch play WORLD --help` lists every KEY
  rematch exploit RUN [--budget STEPS] [--seeds K] [--games N] [--role ROLE] [--json]
                                 trains best responses against the frozen agents: "at least" so exploitable
  rematch report RUN... [--out FILE] [--games N] [--json]
                                 one page about a run or several seeds, offline: verdict, curves, gap beside
                                 exploitability, payoff matrix of past selves, forgetting, alarms and causes
  rematch export RUN --out FILE [--onnx]
                                 the policy alone: FILE.safetensors and FILE.json, for --players, play and
                                 --from, FILE-ROLE where there are several roles; as FILE.onnx too
  rematch film RUN --out FILE [--seconds S] [--seed S] [--greedy]
                                 one game of a run's players as FILE.gif or FILE.mp4
  rematch solve WORLD [--KEY VALUE ...] [--threads T] [--json] [--picture FILE]
                                 the exact value of a game that is small enough; `rematch solve WORLD --help`
                                 lists every KEY
  rematch bench [WORLD] [--json] [--seconds S]
                                 speed, beside its peers, in one run
  rematch worlds                 the worlds there are, with their roles and scripted players
  rematch recipes                the recipes there are

RUN is a run's folder, or its name in runs/; for eval and film also the file of a policy that plays every
seat. Exit code 2: something in the command or its files is wrong.
"""
