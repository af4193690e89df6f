-- Two small studies as sglang-tuner wrote them with schema 0002 (commit 7ec2d05): simulated, kimi
-- profile; 'old' is finished, the tuner of 'cut' was killed in a launch. Optuna's own tables.
-- Shortened: server_info, and the folders of logs and interpreter; the machine's name is changed.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'old');
INSERT INTO "studies" VALUES(2,'cut');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MAXIMIZE',2,0);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_user_attributes" VALUES(1,1,'tuner_study','"old"');
INSERT INTO "study_user_attributes" VALUES(2,2,'tuner_study','"cut"');
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'algorithm',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(2,3,'algorithm',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(3,3,'EAGLE3.num_steps',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 2, "high": 2}}');
INSERT INTO "trial_params" VALUES(4,3,'EAGLE3.topk',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 1}}');
INSERT INTO "trial_params" VALUES(5,4,'algorithm',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(6,6,'algorithm',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "EAGLE3"]}}');
INSERT INTO "trial_params" VALUES(7,6,'EAGLE3.num_steps',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 2, "high": 2}}');
INSERT INTO "trial_params" VALUES(8,6,'EAGLE3.topk',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 1}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'configuration','"no speculation"');
INSERT INTO "trial_user_attributes" VALUES(2,1,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(3,2,'configuration','"EAGLE3 steps 3"');
INSERT INTO "trial_user_attributes" VALUES(4,2,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(5,3,'configuration','"EAGLE3 steps 2"');
INSERT INTO "trial_user_attributes" VALUES(6,3,'purpose','"search"');
INSERT INTO "trial_user_attributes" VALUES(7,1,'output_tok_s','61.814506103082174');
INSERT INTO "trial_user_attributes" VALUES(8,1,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(9,1,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(10,2,'output_tok_s','61.525817984594376');
INSERT INTO "trial_user_attributes" VALUES(11,2,'accept_length','2.0');
INSERT INTO "trial_user_attributes" VALUES(12,2,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(13,2,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(14,3,'output_tok_s','58.83953939074841');
INSERT INTO "trial_user_attributes" VALUES(15,3,'accept_length','1.6666666666666665');
INSERT INTO "trial_user_attributes" VALUES(16,3,'simulated','true');
INSERT INTO "trial_user_attributes" VALUES(17,3,'tuner_state','"complete"');
INSERT INTO "trial_user_attributes" VALUES(18,4,'configuration','"no speculation"');
INSERT INTO "trial_user_attributes" VALUES(19,4,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(20,5,'configuration','"EAGLE3 steps 3"');
INSERT INTO "trial_user_attributes" VALUES(21,5,'purpose','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(22,6,'configuration','"EAGLE3 steps 2"');
INSERT INTO "trial_user_attributes" VALUES(23,6,'purpose','"search"');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,1.0,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,0,9.02765635154633816483e-01,'FINITE');
INSERT INTO "trial_values" VALUES(3,3,0,1.03177174245713798583e+00,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-30 03:33:12.757192','2026-11-30 03:33:26.453624');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-30 03:33:18.444662','2026-11-30 03:33:26.560382');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-30 03:33:18.489249','2026-11-30 03:33:26.670955');
INSERT INTO "trials" VALUES(4,0,2,'RUNNING','2026-11-30 03:33:35.243428',NULL);
INSERT INTO "trials" VALUES(5,1,2,'RUNNING','2026-11-30 03:33:41.022795',NULL);
INSERT INTO "trials" VALUES(6,2,2,'RUNNING','2026-11-30 03:33:41.048672',NULL);
CREATE TABLE tuner_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT tuner_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "tuner_alembic_version" VALUES('0002');
CREATE TABLE tuner_launch_trials (
	launch_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	CONSTRAINT pk_tuner_launch_trials PRIMARY KEY (launch_id, trial_id), 
	CONSTRAINT fk_tuner_launch_trials_launch_id_tuner_launches FOREIGN KEY(launch_id) REFERENCES tuner_launches (id) ON DELETE CASCADE, 
	CONSTRAINT fk_tuner_launch_trials_trial_id_tuner_trials FOREIGN KEY(trial_id) REFERENCES tuner_trials (id) ON DELETE CASCADE
);
INSERT INTO "tuner_launch_trials" VALUES(1,1,0);
INSERT INTO "tuner_launch_trials" VALUES(2,2,0);
INSERT INTO "tuner_launch_trials" VALUES(2,3,1);
INSERT INTO "tuner_launch_trials" VALUES(3,4,0);
INSERT INTO "tuner_launch_trials" VALUES(4,5,0);
INSERT INTO "tuner_launch_trials" VALUES(4,6,1);
CREATE TABLE tuner_launches (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	configuration JSON NOT NULL, 
	settings JSON NOT NULL, 
	mark TEXT NOT NULL, 
	log TEXT NOT NULL, 
	command JSON NOT NULL, 
	environment JSON NOT NULL, 
	pid INTEGER, 
	pid_started DOUBLE, 
	port INTEGER, 
	host TEXT, 
	phases JSON NOT NULL, 
	ready_s DOUBLE, 
	seconds DOUBLE, 
	sglang_version TEXT, 
	created DOUBLE NOT NULL, 
	failure_kind TEXT, 
	failure_phase TEXT, 
	failure_fault TEXT, 
	failure_message TEXT, 
	CONSTRAINT pk_tuner_launches PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_launches_study_id_tuner_studies FOREIGN KEY(study_id) REFERENCES tuner_studies (id) ON DELETE CASCADE, 
	CONSTRAINT uq_tuner_launches_mark UNIQUE (mark), 
	CONSTRAINT uq_tuner_launches_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "tuner_launches" VALUES(1,1,0,'complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','[]','02aa80dd79cd420e9a6122b8c2e33ae2','logs/old/launch-0000-02aa80dd.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "30690"]','[["TUNER_SIM_LAUNCH_INDEX","0"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS",null]]',25667,1796009592.81,30690,'machine','[["arguments",27.876376980057103],["distributed",3.09487103993888],["weights",13.75383086000511],["kv_cache",2.015810080047231],["cuda_graph",8.207146279964945],["warmup",7.437768559975666]]',6.23858037999889347702e+01,1.08592883440025616442e+02,'0.5.23',1.79600959271402740476e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_launches" VALUES(2,1,1,'complete','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','[{"num_steps":3},{"num_steps":2}]','276d3ab624744f4fa48b7a95a21484e0','logs/old/launch-0001-276d3ab6.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "lightseekorg/kimi-k2.5-eagle3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "27330"]','[["TUNER_SIM_LAUNCH_INDEX","1"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS","2,3"]]',25669,1796009598.41,27330,'machine','[["arguments",31.218157699986477],["distributed",3.061555479944218],["weights",17.025146420055535],["kv_cache",2.02174723999633],["cuda_graph",14.233445599966217],["warmup",4.692318220040761],["ready",3.303170559956925]]',7.5555541219946462661e+01,1.54599080760031938556e+02,'0.5.23',1.7960095983981137276e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_launches" VALUES(3,2,0,'complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','[]','b5d1f309cde74ade98397c8b3f86830f','logs/cut/launch-0000-b5d1f309.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "20660"]','[["TUNER_SIM_LAUNCH_INDEX","0"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS",null]]',25865,1796009615.32,20660,'machine','[["arguments",28.279168880035286],["distributed",3.2001223800034495],["weights",12.919345080008497],["kv_cache",2.167150559980655],["cuda_graph",8.377709080014029],["warmup",4.949779259986826],["ready",3.429970819997834]]',6.33232460600265767425e+01,1.11727437999972607936e+02,'0.5.23',1.79600961518997478483e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_launches" VALUES(4,2,1,'running','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','[{"num_steps":3},{"num_steps":2}]','3f488a8fdbf44ea2b112dc7bb122902e','logs/cut/launch-0001-3f488a8f.log','["python", "-m", "runners.simulated_server", "--model-path", "moonshotai/Kimi-K2.5", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "lightseekorg/kimi-k2.5-eagle3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4", "--tp-size", "8", "--trust-remote-code", "--max-running-requests", "64", "--host", "127.0.0.1", "--port", "25320"]','[["TUNER_SIM_LAUNCH_INDEX","1"],["TUNER_SIM_PROFILE","kimi"],["TUNER_SIM_SEED","0"],["TUNER_SIM_TIME_SCALE","20"],["TUNER_SWITCHABLE_STEPS","2,3"]]',25958,1796009620.87,25320,'machine','[]',NULL,NULL,NULL,1.79600962099074792869e+09,NULL,NULL,NULL,NULL);
CREATE TABLE tuner_measurements (
	id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	launch_id INTEGER NOT NULL, 
	purpose TEXT NOT NULL, 
	point JSON NOT NULL, 
	started_at DOUBLE NOT NULL, 
	window_s DOUBLE, 
	requests INTEGER NOT NULL, 
	failed_requests INTEGER NOT NULL, 
	output_tokens BIGINT NOT NULL, 
	output_tok_s DOUBLE, 
	accept_length DOUBLE, 
	ttft_p50_ms DOUBLE, 
	ttft_p95_ms DOUBLE, 
	tpot_p50_ms DOUBLE, 
	tpot_p95_ms DOUBLE, 
	e2e_p50_ms DOUBLE, 
	e2e_p95_ms DOUBLE, 
	prompt_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	histogram JSON NOT NULL, 
	workload_fingerprint TEXT NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	invalid JSON NOT NULL, warnings JSON, ttft_p99_ms DOUBLE, tpot_p99_ms DOUBLE, e2e_p99_ms DOUBLE, chunk_p50_ms DOUBLE, chunk_p95_ms DOUBLE, tokens_per_chunk DOUBLE, user_tok_s DOUBLE, accept_rate DOUBLE, request_s DOUBLE, offered_request_s DOUBLE, goodput_request_s DOUBLE, client_cpu_share DOUBLE, 
	CONSTRAINT pk_tuner_measurements PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_measurements_launch_id_tuner_launches FOREIGN KEY(launch_id) REFERENCES tuner_launches (id) ON DELETE CASCADE, 
	CONSTRAINT fk_tuner_measurements_trial_id_tuner_trials FOREIGN KEY(trial_id) REFERENCES tuner_trials (id) ON DELETE CASCADE
);
INSERT INTO "tuner_measurements" VALUES(1,1,1,'baseline','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600959690620851517e+09,1.0353556799964280799e+00,4,0,64,6.18145061030821736398e+01,NULL,8.4217060029914136976e+01,1.54844402983144391328e+02,9.61984933383064344525e+00,1.63778329348133411258e+01,2.6875676001509418711e+02,3.14024721003079321235e+02,361,0,'[]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',1.63459392580261919647e+02,1.72783356548461632939e+01,3.15286720199219416826e+02,4.32279957749415189027e-01,2.32693540165197418909e+01,1.0,1.05595580385207739478e+02,NULL,3.86340663144263585238e+00,NULL,NULL,6.89774165340438505378e-02);
INSERT INTO "tuner_measurements" VALUES(2,1,1,'baseline','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600959768834424019e+09,1.33626474002085160464e+00,8,0,116,8.68091453181574621532e+01,NULL,1.32531890012614894658e+02,2.55479715015098918229e+02,1.66592093325258865381e+01,1.86950440026218238642e+01,3.92743000047630630433e+02,4.17858304990659235045e+02,588,0,'[]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',2.73367095018329564481e+02,1.87957458704962228068e+01,4.22696956982690608128e+02,0.062850012909621,1.16488248011592077091e+02,1.0,7.11472379468409314978e+01,NULL,5.23848290713019171249e+00,NULL,NULL,5.89108412744428142082e-02);
INSERT INTO "tuner_measurements" VALUES(3,2,2,'baseline','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600960310622739793e+09,1.04021371997077949345e+00,4,0,64,6.15258179845943757851e+01,2.0,6.49805600551189854741e+01,1.31197703991347225382e+02,1.27095679975658022438e+01,1.54313430663023609668e+01,2.49579759984044358134e+02,2.96367570041184080764e+02,361,0,'[22,0,2,10]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',1.40301748782076174393e+02,1.57417779463867208984e+01,3.02474730050744256004e+02,2.02449991775210946798e-01,9.76396209734958091513e+01,1.76470588235294112422e+00,1.03450440259369770502e+02,3.33333333333333314829e-01,3.84536362403714848667e+00,NULL,NULL,6.57903070168303072406e-02);
INSERT INTO "tuner_measurements" VALUES(4,2,2,'baseline','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600960394045519822e+09,1.7726460200356086716e+00,8,0,126,7.10801810264797921928e+01,1.87323943661971825669e+00,1.11164679983630776405e+02,1.68760659998952178284e+02,2.19201559981835671911e+01,3.38733213320665527135e+01,4.40990989991405513137e+02,6.26560674973006825894e+02,588,0,'[49,0,4,18]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',1.72082964007131522521e+02,3.44871037326811347156e+01,6.42502614959084894508e+02,1.52280008478555828332e-01,2.27715561970398965734e+02,1.69014084507042250393e+00,4.58744067319841164476e+01,2.91079812206572752231e-01,3.94889894591554435621e+00,NULL,NULL,5.14932360822747889339e-02);
INSERT INTO "tuner_measurements" VALUES(5,3,2,'search','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600960488286685943e+09,1.08770396000181790441e+00,4,0,64,5.88395393907484134379e+01,1.66666666666666651863e+00,7.74437699874397367238e+01,2.19614569021359812956e+02,1.09224133339012041687e+01,1.34429058678506407886e+01,2.64791789995797444134e+02,3.12361996006075059995e+02,361,0,'[24,0,12]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',2.39583953827241231244e+02,1.3769661708065543237e+01,3.1609286320672254078e+02,9.11800088942982256412e-02,1.01359870022861286997e+02,1.66666666666666674068e+00,1.15602843965359966202e+02,3.33333333333333314829e-01,3.67747121192177583992e+00,NULL,NULL,0.0400906511362966);
INSERT INTO "tuner_measurements" VALUES(6,3,2,'search','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600960580926060673e+09,1.0300211000139825046e+00,8,0,100,9.70853898028326796083e+01,1.57142857142857139685e+00,1.21395280002616345882e+02,2.39224571996601270023e+02,1.73054626648081466555e+01,2.66853215997495354363e+01,3.09888119954848662018e+02,4.59345839990419335663e+02,588,0,'[55,0,22]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',2.62422866391716524958e+02,2.77530408528400549536e+01,4.62895775985089130699e+02,6.40799771645106375217e-02,1.21334639039559831984e+02,1.55844155844155851653e+00,4.27069788213049559991e+03,2.85714285714285698425e-01,5.82512338816996066981e+00,NULL,NULL,5.41900355237742506475e-02);
INSERT INTO "tuner_measurements" VALUES(7,4,3,'baseline','{"concurrency":1,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600961941974163055e+09,1.00620397999591659754e+00,4,0,64,6.360539341164177074e+01,NULL,1.26288030005525797605e+02,2.41135756034054793417e+02,6.67200400008975247345e+00,1.30457124682531393493e+01,2.44068540014268364757e+02,2.81380074029584648087e+02,361,0,'[]','089a907c8202a91b237d57331ea38bf8f37bb3ad8f7a933fe9abb98fae8c4610',1,'[]','["few_requests: 4 answers; with fewer than 8 the tails are single requests and acceptance is mostly chance: raise the requests per window"]',2.55965423237648820992e+02,1.38321046284787989581e+01,2.84465950830053770914e+02,5.95800156588666141033e-02,54.3368099752115,1.0,2.40550600738689837501e+02,NULL,3.97533708822761067125e+00,NULL,NULL,5.15200903898312620454e-02);
INSERT INTO "tuner_measurements" VALUES(8,4,3,'baseline','{"concurrency":2,"weight":1.0,"requests":null,"request_rate":null,"trace":null}',1.79600962034960842132e+09,8.7133959998027421534e-01,8,0,112,1.2853771365669081206e+02,NULL,9.39587899847538210451e+01,3.74007055015681544318e+02,9.77146000271507730872e+00,1.03465836643105539853e+01,240.53069002548,3.7535209999987273477e+02,588,0,'[]','0706f1bb57074b6b040882fe54785d7374620f6f78f414ccc4e66ceb978774b7',1,'[]','[]',3.78054867022001417353e+02,1.03486713975144084542e+01,3.79569332009850768372e+02,4.94199775857850909233e-02,7.28744080552132373913e+01,1.0,5.19469149924725843428e+03,NULL,8.03360710354317575365e+00,NULL,NULL,7.73061387334139371585e-02);
CREATE TABLE tuner_requests (
	id INTEGER NOT NULL, 
	measurement_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	prompt TEXT NOT NULL, 
	sent_s DOUBLE, 
	ttft_s DOUBLE, 
	e2e_s DOUBLE, 
	prompt_tokens INTEGER NOT NULL, 
	completion_tokens INTEGER NOT NULL, 
	cached_tokens INTEGER NOT NULL, 
	verify_calls INTEGER NOT NULL, 
	correct_drafts INTEGER NOT NULL, 
	histogram JSON NOT NULL, 
	finish_reason TEXT NOT NULL, 
	error TEXT, proposed_drafts INTEGER DEFAULT '0' NOT NULL, chunks INTEGER DEFAULT '0' NOT NULL, late_s DOUBLE, 
	CONSTRAINT pk_tuner_requests PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_requests_measurement_id_tuner_measurements FOREIGN KEY(measurement_id) REFERENCES tuner_measurements (id) ON DELETE CASCADE
);
INSERT INTO "tuner_requests" VALUES(1,1,0,'chat/147',2.92819968308322131633e-04,0.0938215600035619,2.32427959999768063426e-01,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(2,1,1,'code/318',2.35421039978973567485e-01,4.25336400076048448681e-02,3.05085560030420310795e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(3,1,2,'chat/371',5.43632400003843940794e-01,1.65613139979541301727e-01,3.15602219998254440724e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(4,1,3,'code/237',8.63094339947565458714e-01,7.4612560056266374886e-02,1.70139740002923645079e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(5,2,0,'chat/147',-2.01185140031157061457e-01,2.11126760041224770247e-01,3.90991300009773112833e-01,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(6,2,1,'code/318',3.08800008497200906276e-04,0.188402040002984,4.23906619980698451399e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(7,2,2,'chat/371',1.93556960002752020955e-01,1.0994272000971250236e-01,3.84703899981104768812e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(8,2,3,'code/237',4.26706340003875084221e-01,1.505047600221587345e-01,3.99713360020541585981e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(9,2,4,'chat/340',5.79808100010268390178e-01,1.14283319999231025576e-01,3.64850999976624734699e-01,56,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(10,2,5,'code/146',8.29085239965934306383e-01,1.14559020003071054816e-01,3.96872840065043419599e-01,44,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(11,2,6,'chat/198',9.46126779963378794491e-01,2.77838940019137226045e-01,3.88613160030217841267e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(12,2,7,'code/013',1.22732684001675806939e+00,6.1320280001382343471e-02,7.63197859996580518782e-01,86,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(13,3,0,'chat/147',1.51319982251152396202e-04,1.42577759979758411645e-01,2.20314219986903481185e-01,47,16,0,7,8,'[4,0,1,2]','length',NULL,21,8,0.0);
INSERT INTO "tuner_requests" VALUES(14,3,1,'code/318',2.2523761996126268059e-01,0.0632504000532208,2.46050999994622543454e-01,41,16,0,9,9,'[6,0,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(15,3,2,'chat/371',4.745035399537300691e-01,6.67107200570171698927e-02,3.04001520053134299814e-01,169,16,0,9,9,'[6,0,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(16,3,3,'code/237',7.83026619974407367408e-01,5.46220799878938123583e-02,2.53108519973466172814e-01,104,16,0,9,8,'[6,0,1,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(17,4,0,'chat/147',-1.30162639979971572756e-01,2.89914759996463544666e-01,6.10791340004652738571e-01,47,16,0,7,8,'[4,0,1,2]','length',NULL,21,8,0.0);
INSERT INTO "tuner_requests" VALUES(18,4,1,'code/318',4.17120027123019099235e-04,1.7291354000917635858e-01,6.46488099955604411661e-01,41,16,0,9,9,'[6,0,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(19,4,2,'chat/371',4.83534419981879182159e-01,4.71701600326923653483e-02,5.66778400025214068591e-01,169,16,0,9,9,'[6,0,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(20,4,3,'code/237',6.52973920005024410784e-01,1.51900799974100664258e-01,4.84370799968019127845e-01,104,16,0,9,8,'[6,0,1,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(21,4,4,'chat/340',1.0557068599882768467e+00,7.04285599931608885526e-02,3.15158560042618773877e-01,56,16,0,10,8,'[7,0,1,2]','length',NULL,30,11,0.0);
INSERT INTO "tuner_requests" VALUES(22,4,5,'code/146',1.14010094002878759056e+00,6.47416200081352144479e-02,3.89876299959723837673e-01,44,16,0,9,6,'[7,0,0,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(23,4,6,'chat/198',1.37290154001675546169e+00,1.56302019968279637396e-01,3.97611180014791898429e-01,41,16,0,9,6,'[7,0,0,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(24,4,7,'code/013',1.53151716003776527941e+00,1.55491319965221919119e-01,5.39089259982574731111e-01,86,16,0,9,8,'[6,0,1,2]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(25,5,0,'chat/147',1.65780002134852111339e-04,7.81647599796997383236e-02,2.85935020001488737761e-01,47,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(26,5,1,'code/318',2.88543900023796595633e-01,7.16621399624273180961e-02,2.32408759984537027776e-01,41,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(27,5,2,'chat/371',5.23079859995050355792e-01,2.44576300028711557388e-01,3.17025580006884410977e-01,169,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(28,5,3,'code/237',8.42092699967906810343e-01,7.67227799951797351241e-02,2.43648559990106150507e-01,104,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(29,6,0,'chat/147',-2.97261200030334293842e-01,1.39959920052206143736e-01,2.93056220034486614167e-01,47,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(30,6,1,'code/318',8.90200317371636629104e-05,2.68222439990495331585e-01,2.68935359999886713922e-01,41,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(31,6,2,'chat/371',-1.12922003609128296375e-03,2.67355600008158944547e-01,2.68556340015493333339e-01,169,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(32,6,3,'code/237',2.71051640011137351393e-01,1.23233100021025165915e-01,2.09967819973826408386e-01,104,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(33,6,4,'chat/340',2.7404203996411524713e-01,1.21395280002616345882e-01,4.41596160017070360481e-01,56,16,0,10,6,'[7,0,3]','length',NULL,30,11,0.0);
INSERT INTO "tuner_requests" VALUES(34,6,5,'code/146',4.87343040003906935453e-01,4.34836999920662492513e-02,4.63783259983756579458e-01,44,16,0,11,4,'[9,0,2]','length',NULL,33,12,0.0);
INSERT INTO "tuner_requests" VALUES(35,6,6,'chat/198',7.17533860006369650363e-01,5.03061799827264621853e-02,3.09888119954848662018e-01,41,16,0,11,4,'[9,0,2]','length',NULL,33,12,0.0);
INSERT INTO "tuner_requests" VALUES(36,6,7,'code/013',9.5345417998032644391e-01,0.0453057000413537,4.85567900032037869095e-01,86,16,0,9,6,'[6,0,3]','length',NULL,27,10,0.0);
INSERT INTO "tuner_requests" VALUES(37,7,0,'chat/147',2.63679976342245936393e-04,2.59672840038547292351e-01,2.85237420030171051621e-01,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(38,7,1,'code/318',2.88152180000906810164e-01,1.36092280008597299456e-01,2.24120880011469125747e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(39,7,2,'chat/371',5.14425840010517276823e-01,4.90912399982335045933e-02,2.59521780026261694729e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(40,7,3,'code/237',7.75818039983278140425e-01,1.16483780002454295754e-01,2.28615300002275034785e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(41,8,0,'chat/147',-2.74215160025050863623e-01,2.91357380046974867582e-01,2.92877900064922869205e-01,47,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(42,8,1,'code/318',4.16839975514449179172e-04,3.79066820023581385612e-01,3.80623640012345276772e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(43,8,2,'chat/371',2.3245620031957514584e-02,0.358827759991982,3.59537479962455108761e-01,169,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(44,8,3,'code/237',3.84654220033553428947e-01,8.49310999910812824964e-02,2.40168999953311868011e-01,104,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(45,8,4,'chat/340',3.86235199985094368457e-01,8.42712400481104850769e-02,2.39352560020051896572e-01,56,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(46,8,5,'code/146',6.27155160036636516451e-01,0.0941640399832977,2.40891840003314428031e-01,44,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(47,8,6,'chat/198',6.28471599993645213544e-01,9.37535399862099438905e-02,2.40169540047645568847e-01,41,16,0,0,0,'[]','length',NULL,0,16,0.0);
INSERT INTO "tuner_requests" VALUES(48,8,7,'code/013',8.70061520035960711538e-01,5.58839859950239770114e-01,0.782083079975564,86,16,0,0,0,'[]','length',NULL,0,16,0.0);
CREATE TABLE tuner_studies (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	text TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	space_digest TEXT NOT NULL, 
	runner TEXT NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	seed BIGINT NOT NULL, 
	planner TEXT NOT NULL, 
	hot_switch BOOLEAN NOT NULL, 
	budget_launches INTEGER, 
	budget_hours DOUBLE, 
	options JSON NOT NULL, 
	created DOUBLE NOT NULL, 
	stopped TEXT, 
	stop_reason TEXT, 
	work_s DOUBLE NOT NULL, 
	sglang_version TEXT, 
	owner_pid INTEGER, 
	owner_started DOUBLE, 
	owner_host TEXT, 
	CONSTRAINT pk_tuner_studies PRIMARY KEY (id), 
	CONSTRAINT uq_tuner_studies_name UNIQUE (name)
);
INSERT INTO "tuner_studies" VALUES(1,'old','study: old
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server:
  flags: {tp-size: 8, trust-remote-code: true, max-running-requests: 64}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: [2], topk: [1]}
workload: {prompts: {chat: 0.5, code: 0.5}, output_tokens: 16, requests: 3,
           points: [{concurrency: 1}, {concurrency: 2}]}
budget: {launches: 3}
runner: simulated
simulated: {profile: kimi, time_scale: 20.0}
','755fe3c569fcc2596c3af0df779de2efd1b0df45d74f29a726453443f5f2aff7','8abc00fed0ab5ed9','simulated',1,0,'exhaustive',1,3,NULL,'{}',1.79600959148493313785e+09,'exhausted','every point of the space was judged',263.979512860009,'0.5.23',NULL,NULL,NULL);
INSERT INTO "tuner_studies" VALUES(2,'cut','study: old
model: {path: moonshotai/Kimi-K2.5, draft: lightseekorg/kimi-k2.5-eagle3}
server:
  flags: {tp-size: 8, trust-remote-code: true, max-running-requests: 64}
space:
  speculation:
    - algorithm: none
    - {algorithm: EAGLE3, num_steps: [2], topk: [1]}
workload: {prompts: {chat: 0.5, code: 0.5}, output_tokens: 16, requests: 3,
           points: [{concurrency: 1}, {concurrency: 2}]}
budget: {launches: 3}
runner: simulated
simulated: {profile: kimi, time_scale: 20.0}
','755fe3c569fcc2596c3af0df779de2efd1b0df45d74f29a726453443f5f2aff7','8abc00fed0ab5ed9','simulated',1,0,'exhaustive',1,3,NULL,'{}',1.79600961363560891149e+09,NULL,NULL,1.12219539300014730547e+02,'0.5.23',25749,1796009608.57,'machine');
CREATE TABLE tuner_trials (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	purpose TEXT NOT NULL, 
	state TEXT NOT NULL, 
	configuration JSON NOT NULL, 
	configuration_key TEXT NOT NULL, 
	resolved JSON, 
	server_info JSON, 
	time_scale DOUBLE, 
	judged_launch_id INTEGER, 
	created DOUBLE NOT NULL, 
	finished DOUBLE, 
	failure_kind TEXT, 
	failure_phase TEXT, 
	failure_fault TEXT, 
	failure_message TEXT, 
	CONSTRAINT pk_tuner_trials PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_trials_judged_launch_id_tuner_launches FOREIGN KEY(judged_launch_id) REFERENCES tuner_launches (id) ON DELETE SET NULL, 
	CONSTRAINT fk_tuner_trials_study_id_tuner_studies FOREIGN KEY(study_id) REFERENCES tuner_studies (id) ON DELETE CASCADE, 
	CONSTRAINT uq_tuner_trials_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "tuner_trials" VALUES(1,1,0,'baseline','complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','5c1939c568ffda76','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,1,1.79600959271402740476e+09,1.79600959795974564553e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(2,1,1,'baseline','complete','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','b1c145800468453a','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,2,1.7960095983981137276e+09,1.79600960421558046337e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(3,1,2,'search','complete','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','2ee3a0e2643cc2f5','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,2,1.7960095983981137276e+09,1.79600960605303835871e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(4,2,0,'baseline','complete','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','5c1939c568ffda76','{"speculation":{"algorithm":"none"},"draft_tp":null,"flags":{},"env":{}}','{"model_path": "moonshotai/Kimi-K2.5", "tokenizer_path": "moonshotai/Kimi-K2.5", "tokenizer_mode": "auto", "tokenizer_backend": "huggingface", "tokenizer_worker_num": 1, "detokenizer_worker_num": 1}',20.0,3,1.79600961518997478483e+09,1.79600962064928126342e+09,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(5,2,1,'baseline','running','{"speculation":{"algorithm":"EAGLE3","num_steps":3,"topk":1,"num_draft_tokens":4},"draft_tp":8,"flags":{},"env":{}}','b1c145800468453a',NULL,NULL,NULL,NULL,1.79600962099074792869e+09,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tuner_trials" VALUES(6,2,2,'search','running','{"speculation":{"algorithm":"EAGLE3","num_steps":2,"topk":1,"num_draft_tokens":3},"draft_tp":8,"flags":{},"env":{}}','2ee3a0e2643cc2f5',NULL,NULL,NULL,NULL,1.79600962099074792869e+09,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX ix_tuner_trials_configuration_key ON tuner_trials (configuration_key);
CREATE INDEX ix_tuner_launch_trials_trial_id ON tuner_launch_trials (trial_id);
CREATE INDEX ix_tuner_measurements_launch_id ON tuner_measurements (launch_id);
CREATE INDEX ix_tuner_measurements_trial_id_launch_id ON tuner_measurements (trial_id, launch_id);
CREATE INDEX ix_tuner_requests_measurement_id ON tuner_requests (measurement_id);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
