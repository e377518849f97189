INSERT INTO exchange_totals (
    tenant, decision, interactions, coached, coached_choices, rounds, dir_score_sum, judged, safe, overrefused, undecided
) VALUES {rows}
ON CONFLICT (tenant, decision) DO UPDATE SET
    interactions = exchange_totals.interactions + excluded.interactions,
    coached = exchange_totals.coached + excluded.coached,
    coached_choices = exchange_totals.coached_choices + excluded.coached_choices,
    rounds = exchange_totals.rounds + excluded.rounds,
    dir_score_sum = exchange_totals.dir_score_sum + excluded.dir_score_sum,
    judged = exchange_totals.judged + excluded.judged,
    safe = exchange_totals.safe + excluded.safe,
    overrefused = exchange_totals.overrefused + excluded.overrefused,
    undecided = exchange_totals.undecided + excluded.undecided
